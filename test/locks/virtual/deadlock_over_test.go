//go:build !race

package virtual_test

import (
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A wait ends after its proxy has told of it: the proxy that looks for deadlocks sees a cycle which is
// over, asks again, and refuses nobody.
func TestACycleThatIsOverIsNoDeadlock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, near := virtualtest.StartBoth(t)
		link := proxytest.LinkTo(t, server)
		link.Away(100 * time.Millisecond)
		far := proxytest.Start(t, "redis://"+link.Addr(), nil)
		anna, annaWaits := proxytest.Dial(t, near.Addr), proxytest.Dial(t, near.Addr)
		ben := proxytest.Dial(t, far.Addr)
		// The search sees the cycle after 300 to 400 ms, and asks the far proxy whether it lasts. That
		// can take a round trip to see that the client has gone.
		const first, last = 100 * time.Millisecond, 190 * time.Millisecond
		for leaves := first; leaves <= last; leaves += 10 * time.Millisecond {
			a, b := anna.Lock("a 600 OWNER anna"), ben.Lock("b 600 OWNER ben")
			benWaits := proxytest.Dial(t, far.Addr)
			benWaits.Send("LOCK a 600 OWNER ben WAIT 0")
			time.Sleep(5 * time.Second) // it is known, and searched for seldom
			annaWaits.Send("LOCK b 600 OWNER anna WAIT 0")
			time.Sleep(leaves)
			benWaits.Close()
			time.Sleep(5 * time.Second)
			ben.Expect(proxytest.Unlock("b", b), ":1\r\n")
			token := proxytest.Token(t, annaWaits.Reply())
			if t.Failed() {
				t.Fatalf("ben left %v after anna began to wait", leaves)
			}
			annaWaits.Expect(proxytest.Unlock("b", token), ":1\r\n")
			anna.Expect(proxytest.Unlock("a", a), ":1\r\n")
		}
	})
}
