//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A wait ends after its proxy has told of it: the proxy that looks for deadlocks sees a cycle which
// is over, asks again, and refuses nobody.
func TestACycleThatIsOverIsNoDeadlock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, near := virtualtest.StartBoth(t)
		link := proxytest.LinkTo(t, server)
		link.Away(100 * time.Millisecond)
		far := proxytest.Start(t, "redis://"+link.Addr(), nil)
		anna, annaWaits := proxytest.Dial(t, near.Addr), proxytest.Dial(t, near.Addr)
		ben := proxytest.Dial(t, far.Addr)
		// The search sees the cycle after 300 to 400 ms, and asks the far proxy whether it lasts.
		// That can take a round trip to see that the client has gone.
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

// Two owners at one proxy begin to wait together. The first closes a cycle, and the second another
// one through it. If the first is refused at first, the second cycle is over, and nobody is refused
// for it.
func TestACycleThroughARefusedWaitIsNoDeadlock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, near := virtualtest.StartBoth(t)
		far := proxytest.Start(t, server.URL(), nil)
		spared := 0
		for i := range 24 { // which of the two is looked at first is chosen at random
			key := func(name string) string { return fmt.Sprint(name, i) }
			anna, ben := proxytest.Dial(t, near.Addr), proxytest.Dial(t, near.Addr)
			emil := proxytest.Dial(t, far.Addr)
			anna.Lock(key("a") + " 600 OWNER anna")
			ben.Lock(key("b") + " 600 OWNER ben")
			emil.Lock(key("e") + " 600 OWNER emil")
			emil.Send(fmt.Sprintf("LOCKALL 600 2 %s %s WAIT 0 OWNER emil", key("a"), key("b")))
			cara := proxytest.Dial(t, near.Addr) // the proxy searches for her every 100 ms
			cara.Send(fmt.Sprintf("LOCK %s 600 WAIT 0 OWNER cara", key("b")))
			time.Sleep(5050 * time.Millisecond)
			anna.Send(fmt.Sprintf("LOCK %s 600 WAIT 0 OWNER anna", key("e")))
			time.Sleep(time.Millisecond)
			ben.Send(fmt.Sprintf("LOCK %s 600 WAIT 2 OWNER ben", key("a")))
			if got := anna.Reply(); !strings.HasPrefix(got, "-DEADLOCK ") {
				t.Errorf("anna: %q", got)
			}
			if got := ben.Reply(); got == "$-1\r\n" {
				spared++
			} else if !strings.HasPrefix(got, "-DEADLOCK ") {
				t.Errorf("ben: %q", got)
			}
			for _, c := range []*proxytest.Conn{anna, ben, cara, emil} {
				c.Close()
			}
		}
		if spared == 0 {
			t.Error("the second was refused each time")
		}
	})
}
