//go:build !race

package virtual_test

import (
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A release tells the proxy whose waiter is next, which asks at once: whenever it comes between two
// of that waiter's own looks, which are 210 ms apart or more.
func TestReleaseTellsTheNextProxy(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		other := proxytest.Start(t, server.URL(), nil)
		holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, other.Addr)
		for round := range 10 {
			token := holder.Lock("job 600")
			waiter.Send("LOCK job 600 WAIT 0")
			proxytest.AwaitListed(t, holder, "job")
			time.Sleep(time.Second + time.Duration(round)*23*time.Millisecond)
			began := time.Now()
			holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
			token = proxytest.Token(t, waiter.Reply())
			if took := time.Since(began); took > 10*time.Millisecond {
				t.Errorf("round %d: the waiter had the lock after %v", round, took)
			}
			waiter.Expect(proxytest.Unlock("job", token), ":1\r\n")
		}
	})
}
