//go:build !race

package virtual_test

import (
	"testing"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/virtualtest"
)

// The holder's own DEL loses the lock too.
func TestSessionLockDeletedByItsHolder(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Do("HELLO 3")
		token := c.Lock("job 30 SESSION")
		c.Expect("DEL job", ":1\r\n")
		wantLost(t, c, "3", "job", token)
	})
}
