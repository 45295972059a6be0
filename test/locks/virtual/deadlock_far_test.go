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

// Two owners at two proxies that are far from Redis close a cycle. The second is told within 2 s and
// 15 round trips. Two searches take four each: who has the lock, who waits there, who has the lock
// that it waits for, and the answer. Another is its LOCK's, and some open connections, and ask these
// which server they lead to.
func TestADeadlockFarAway(t *testing.T) {
	for _, way := range []time.Duration{0, 50 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(way.String(), func(t *testing.T) {
			virtualtest.Run(t, func(t *testing.T) {
				server := virtualtest.StartStore(t)
				var owners []*proxytest.Conn
				for i := range 2 {
					link := proxytest.LinkTo(t, server)
					link.Away(way)
					p := proxytest.Start(t, "redis://"+link.Addr(), nil)
					owners = append(owners, proxytest.Dial(t, p.Addr))
					owners[i].Lock(fmt.Sprintf("k%d 600 OWNER o%d", i, i))
				}
				owners[0].Send("LOCK k1 600 OWNER o0 WAIT 0")
				time.Sleep(5 * time.Second) // it waits
				began := time.Now()
				owners[1].Send("LOCK k0 600 OWNER o1 WAIT 0")
				if got := owners[1].Reply(); !strings.HasPrefix(got, "-DEADLOCK ") {
					t.Errorf("the last wait is answered %q", got)
				}
				if took := time.Since(began); took > 2*time.Second+15*2*way {
					t.Errorf("it was told after %v", took)
				}
			})
		})
	}
}
