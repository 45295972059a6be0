//go:build faults

package real_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
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
			far := lockFar(t, direct, p.Addr, "30", clients, locks/clients)
			far.renewed(15 * time.Second) // twice
			far.close()
			// None of these ends by itself.
			lockFar(t, direct, p.Addr, "600", clients, locks/clients).close()
		})
	}
}
