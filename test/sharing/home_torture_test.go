package sharing_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// Clients keep their own replies while idle homes are closed, and homes and lanes are killed, one
// at a time or all, or lost with the network.
func TestHomeTorture(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.Start(t, "redis://"+link.Addr(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.UpstreamConns, cfg.HomeIdle = false, 2, 2*time.Millisecond
	})
	killer := proxytest.Dial(t, server.Addr())
	killer.Expect("ACL SETUSER ann on >pw ~* &* +@all", "+OK\r\n")
	for db := range 3 {
		killer.Expect(fmt.Sprintf("SELECT %d", db), "+OK\r\n")
		killer.Expect(fmt.Sprintf("SET db %d", db), "+OK\r\n")
	}
	stop := make(chan struct{})
	var killing sync.WaitGroup
	var asked atomic.Int64
	var killed atomic.Int32
	killing.Go(func() { // ends with stop
		for awaitAsked(&asked, 100+rand.Int64N(400), stop) {
			killed.Add(1)
			switch rand.IntN(12) {
			default:
				ids := laneIDs(killer, "resp=")
				killer.Do("CLIENT KILL ID " + ids[rand.IntN(len(ids))] + " SKIPME yes")
			case 0:
				killer.Do("CLIENT KILL TYPE normal SKIPME yes")
			case 1:
				link.Cut()
			case 2:
				link.Reset()
			case 3:
				link.HoldReplies()
				testwait.Holds(func() bool { return link.Holding() || isClosed(stop) })
				link.Cut()
				link.Release()
			case 4:
				killer.Do("CLIENT KILL USER ann")
			}
		}
	})
	torture(t, p.Addr, 40, &asked, func() bool { return killed.Load() >= 10 }, true)
	close(stop)
	killing.Wait()
	testwait.Until(t, "no client is left", func() bool {
		st := p.Server.Stats()
		return st.Clients == 0 && st.Connections.Shared == 0 && st.Connections.Homes == 0
	})
}
