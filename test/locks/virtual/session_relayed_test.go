//go:build !race

package virtual_test

import (
	"fmt"
	"slices"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/internal/test/wire"
)

// The holder's own DEL loses the lock too.
func TestSessionLockDeletedByItsHolder(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Do("HELLO 3")
		token := c.Lock("job 30 SESSION")
		c.Send("DEL job") // which of the two is told first is not promised
		got := []string{c.Reply(), c.Reply()}
		slices.Sort(got)
		want := []string{":1\r\n", fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n%s:%d\r\n",
			wire.Bulk("job"), token)}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		c.Closed()
	})
}
