//go:build !race

package virtual_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// A release gives a place the lock at any moment, also while the place itself asks for the lock.
// Its client is given the lock then when it asks, and if it never does, the lock is nobody's as
// soon as it is released.
func TestAPlaceIsGivenTheLockWhileItAsks(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		link := proxytest.LinkTo(t, virtualtest.StartStore(t))
		link.Away(time.Millisecond)
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		holder, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		for _, asks := range []bool{false, true} {
			for i := range 32 {
				pause := time.Duration(i) * time.Millisecond / 4
				c := proxytest.Dial(t, p.Addr)
				token := holder.Lock("job 600")
				c.Expect("LOCK job 30 PLACE 60", "$-1\r\n")
				time.Sleep(pause)
				holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
				if asks {
					c.Lock("job 30 PLACE 60")
				}
				time.Sleep(20 * time.Millisecond)
				other.Expect("UNLOCK job FORCE", ":1\r\n")
				other.Lock("job 30")
				other.Expect("UNLOCK job", ":1\r\n")
				if t.Failed() {
					t.Fatalf("after %v, its client asks %v", pause, asks)
				}
				c.Close()
			}
		}
	})
}

// A place keeps little of its client.
func TestAPlaceKeepsNoLongNames(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		proxytest.Dial(t, p.Addr).Lock("job 600")
		owner := strings.Repeat("o", 1021)
		c.Expect("LOCK job 60 PLACE 60 OWNER "+owner, "$-1\r\n")
		c.Expect("LOCK job 60 PLACE 60 OWNER "+owner+"o", "-ERR the key and OWNER have 1025 bytes…")
		c.Expect("LOCK job 60 WAIT 1 OWNER "+owner+"o", "$-1\r\n")
	})
}
