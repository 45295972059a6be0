//go:build faults

package lockproxy_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// 3,000 session locks, Redis 100 ms away: none is lost within three of their timeouts, and all are released within a second when the
// program that held them ends, whether each has a connection of its own or not.
func TestFaultManySessionLocksFarAway(t *testing.T) {
	const locks = 3000
	for _, clients := range []int{100, locks} {
		t.Run(fmt.Sprintf("of %d clients", clients), func(t *testing.T) {
			server := testredis.Start(t)
			link := testredis.StartFarLink(t, server.Addr(), 100*time.Millisecond)
			p := startProcess(t, "--upstream", "redis://"+link.Addr())
			t.Cleanup(func() {
				p.cmd.Process.Kill()
				<-p.exit
				if t.Failed() {
					t.Logf("the proxy said:\n%s", p.log.String())
				}
			})
			far := takeFarLocks(t, goRedis(t, server.Addr()), p.addr, "10", clients, locks/clients)
			far.keptFor(30 * time.Second)
			far.close(time.Second)
		})
	}
}
