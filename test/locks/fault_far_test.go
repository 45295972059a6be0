//go:build faults

package locks_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// 3,000 session locks, Redis 100 ms away: none is lost within three of their timeouts. When the
// program that held them ends, all are released within a second plus three times what as many
// clients without locks took to leave on the same machine just before.
func TestFaultManySessionLocksFarAway(t *testing.T) {
	t.Parallel()
	const locks = 3000
	for _, clients := range []int{100, locks} {
		t.Run(fmt.Sprintf("of %d clients", clients), func(t *testing.T) {
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
			without := timeToLeave(t, server, p.Addr, clients)
			direct := proxytest.GoRedis(t, server.Addr())
			within := time.Second + 3*without
			far := lockFar(t, direct, p.Addr, "10", clients, locks/clients)
			far.heldFor(30 * time.Second)
			inTime := far.close(within) <= within
			for tries := 1; tries < 6 && !inTime; tries++ { // other load can hold up one release
				far = lockFar(t, direct, p.Addr, "10", clients, locks/clients)
				inTime = far.close(within) <= within
			}
			if !inTime {
				t.Errorf("never were all released within %v", within)
			}
		})
	}
}

// timeToLeave is how long Redis has connections of some
// clients without locks after they all closed.
func timeToLeave(t *testing.T, server *testredis.Server, addr string, clients int) time.Duration {
	t.Helper()
	admin := proxytest.Dial(t, server.Addr())
	connections := func() int { return strings.Count(admin.Do("CLIENT LIST"), " laddr=") }
	before := connections()
	var list []*proxytest.Conn
	for range clients {
		c := proxytest.Dial(t, addr)
		c.Send("CLIENT ID") // by its home
		list = append(list, c)
	}
	for _, c := range list {
		c.Reply()
	}
	start := time.Now()
	for _, c := range list {
		c.Close()
	}
	testwait.Until(t, "the clients have left", func() bool {
		time.Sleep(3 * time.Millisecond)
		return connections() <= before+10
	})
	took := time.Since(start)
	t.Logf("%d clients without locks have left after %v", clients, took)
	return took
}
