//go:build !race

package virtual_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

func TestLockInTransaction(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Send("MULTI", "SET x 1", "LOCK job 30", "EXEC", "GET x", "LOCK job 30", "MULTI", "LOCK",
			"EXEC", "MULTI", "GET x", "DISCARD", "UNLOCK job")
		for i, want := range []string{"+OK", "+QUEUED", "-ERR Command not allowed inside a transaction",
			"-EXECABORT", "$-1", ":", "+OK",
			"-ERR wrong number of arguments for 'lock' command", "-EXECABORT", "+OK", "+QUEUED", "+OK",
			":1"} {
			if got := c.Reply(); !strings.HasPrefix(got, want) {
				t.Errorf("reply %d: %q, want %q", i, got, want)
			}
		}
	})
}
