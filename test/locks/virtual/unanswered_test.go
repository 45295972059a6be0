//go:build !race

package virtual_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// Requests that Redis does not answer wait in front of the proxy as others do, once their client is
// owed as much as a client can be.
func TestUnansweredRequestsAreBounded(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Send("BLPOP list 0")
		var all atomic.Bool
		var writing sync.WaitGroup
		writing.Go(func() { // ends when all is read
			c.WriteRaw(strings.Repeat("REPLCONF ACK 1\r\n", 1<<19))
			all.Store(true)
		})
		time.Sleep(time.Minute)
		if all.Load() {
			t.Error("8 MiB of requests are kept behind one that blocks")
		}
		store.Ask("RPUSH", "list", "x")
		if got := c.Reply(); !strings.HasPrefix(got, "*2\r\n") {
			t.Errorf("BLPOP: %q", got)
		}
		writing.Wait()
		c.Expect("PING", "+PONG\r\n")
	})
}
