//go:build faults

package real_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// 3,000 session locks, Redis 100 ms away: all are renewed in time, which they are not if that takes
// a round trip for each. When the program that held them ends, all are released.
func TestFaultManySessionLocksFarAway(t *testing.T) {
	t.Parallel()
	const locks = 3000
	for _, clients := range []int{100, locks} {
		t.Run(fmt.Sprintf("of %d clients", clients), func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			link := testredis.StartFarLink(t, server.Addr(), 100*time.Millisecond)
			p := proxytest.StartProcess(t, "--upstream", "redis://"+link.Addr())
			t.Cleanup(func() {
				p.Cmd.Process.Kill()
				<-p.Exit
				if t.Failed() {
					t.Logf("the proxy said:\n%s", p.Log.String())
				}
			})
			direct := proxytest.GoRedis(t, server.Addr())
			far := proxytest.TakeSessionLocks(t, direct, p.Addr, "30", clients, locks/clients)
			renewed(far, 15*time.Second) // twice
			allReleased(far)
			// None of these ends by itself.
			allReleased(proxytest.TakeSessionLocks(t, direct, p.Addr, "600", clients, locks/clients))
		})
	}
}

// renewed waits until each lock ends later than now by at least that much. It fails if one is lost
// before, or a connection is closed.
func renewed(far *proxytest.SessionLocks, by time.Duration) {
	far.T.Helper()
	ends := map[string]time.Duration{}
	for _, key := range far.Keys {
		ends[key] = far.Direct.PExpireTime(proxytest.Ctx, key).Val()
	}
	for _, key := range far.Keys {
		testwait.Until(far.T, key+" is renewed", func() bool {
			end, err := far.Direct.PExpireTime(proxytest.Ctx, key).Result()
			if err != nil || end < 0 {
				far.T.Fatalf("%s is lost: %v, %v", key, end, err)
			}
			return end >= ends[key]+by
		})
	}
	far.AllHeld()
	far.Served()
}

// allReleased ends all clients at once, and waits until their locks are released.
func allReleased(far *proxytest.SessionLocks) {
	far.T.Helper()
	far.Close()
	testwait.Until(far.T, "the locks are released", func() bool { return far.Held() == 0 })
}
