//go:build !race

package virtual_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testwait"
	"lockproxy/internal/virtualtest"
)

// A lock that runs out goes to the client that waits for it at another proxy, not to one that began
// to wait later here, however late.
func TestWaitOvertakesNoWaiterElsewhere(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		other := proxytest.Start(t, server.URL(), nil)
		const rounds, held = 25, 300 * time.Millisecond
		overtaken := 0
		for range rounds {
			holder, late, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
				proxytest.Dial(t, other.Addr)
			holder.Lock("job 0.3")
			began := time.Now()
			waiter.Send("LOCK job 30 WAIT 10")
			awaitListed(t, holder, "job")
			first := make(chan int64)
			go func() { // ends when the waiter is served
				token := proxytest.Token(t, waiter.Reply())
				waiter.Expect(proxytest.Unlock("job", token), ":1\r\n")
				first <- token
			}()
			time.Sleep(time.Until(began.Add(held)) - 10*time.Millisecond + rand.N(15*time.Millisecond))
			late.Send("LOCK job 30 WAIT 10")
			token := proxytest.Token(t, late.Reply())
			late.Expect(proxytest.Unlock("job", token), ":1\r\n")
			if token < <-first {
				overtaken++
			}
		}
		if overtaken > 0 {
			t.Errorf("a waiter was overtaken in %d of %d rounds", overtaken, rounds)
		}
	})
}

// awaitListed waits until a proxy can learn from the upstream that clients wait at another.
func awaitListed(t *testing.T, c *proxytest.Conn, lock string) {
	t.Helper()
	testwait.Until(t, "the waiter is known", func() bool {
		return strings.Contains(c.Do("LOCKINFO "+lock+" WAITERS"), "proxy")
	})
}
