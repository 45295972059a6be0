package real_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// Until the Sentinels are sure of the new master, the old one goes on with the other replica. With
// two to acknowledge a lock it is kept; with one it can be lost.
func TestFailoverByHandWithTwoReplicas(t *testing.T) {
	t.Parallel()
	g := testredis.StartGroup(t, testredis.GroupOptions{})
	old := g.Master()
	var addrs [3]string
	var clients [3]*proxytest.Conn
	for n := range clients {
		addrs[n] = proxytest.Start(t, g.URL(), func(cfg *proxy.Config) {
			cfg.Locks.Durability = lockcmd.Durability{MinReplicas: n,
				ReplicaTimeout: 50 * time.Millisecond}
		}).Addr
		clients[n] = proxytest.Dial(t, addrs[n])
		testwait.Until(t, "replicas acknowledge a lock", func() bool {
			return clients[n].Do(fmt.Sprintf("LOCK first:%d 600", n))[0] == ':'
		})
	}
	g.Failover(t)
	var taken [3][]string
	for i := 0; g.Master() == old && i < 10_000; i++ {
		for n, c := range clients {
			key := fmt.Sprintf("job:%d:%d", n, i)
			c.Send("LOCK " + key + " 600")
			got, err := c.TryReply()
			if err != nil { // the old master had it
				clients[n] = proxytest.Dial(t, addrs[n])
			} else if got[0] == ':' {
				taken[n] = append(taken[n], key)
			}
		}
	}
	master := g.WaitReplaced(t, old)
	for n, keys := range taken {
		lost := 0
		for _, key := range keys {
			if master.Ask("EXISTS", key) != ":1" {
				lost++
			}
		}
		t.Logf("--min-replicas %d: %d of %d locks were lost", n, lost, len(keys))
		if n == 2 && lost > 0 {
			t.Error("a lock that both replicas had was lost")
		}
	}
}
