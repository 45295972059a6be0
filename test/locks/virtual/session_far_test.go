//go:build !race

package virtual_test

import (
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
)

// However far away Redis is, session locks are renewed in time and released at once, many in one
// round trip, even when Redis doesn't know the scripts.
func TestSessionLocksFarAway(t *testing.T) {
	for _, clients := range []int{10, 100} {
		virtualtest.Run(t, func(t *testing.T) {
			store := virtualtest.StartStore(t)
			link := proxytest.LinkTo(t, store)
			p := proxytest.Start(t, "redis://"+link.Addr(), nil)
			link.Set(badlink.State{Latency: 50 * time.Millisecond})
			direct := proxytest.GoRedis(t, store.Addr())
			far := proxytest.TakeSessionLocks(t, direct, p.Addr, "3", clients, 100/clients)
			heldFor := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); {
					time.Sleep(100 * time.Millisecond)
					far.AllHeld()
				}
				far.Served()
				direct.ScriptFlush(proxytest.Ctx)
			}
			heldFor(2 * time.Second)
			heldFor(3 * time.Second)
			// A few round trips of 100 ms: which locks go together depends on who closes first.
			far.Close()
			time.Sleep(2 * time.Second)
			if left := far.Held(); left > 0 {
				t.Errorf("%d of %d are left 2 s after their clients closed", left, len(far.Keys))
			}
		})
	}
}
