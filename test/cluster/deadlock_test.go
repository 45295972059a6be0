package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// Three owners at three proxies wait for each other's locks, which are on different nodes.
func TestADeadlockInACluster(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"sharded": nil,
		"old":     {"--rename-command", "SPUBLISH", "", "--rename-command", "SSUBSCRIBE", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := testredis.StartCluster(t, 3, 0, args...)
			conns, proxies := make([]*proxytest.Conn, 3), make([]*proxytest.Proxy, 3)
			for i := range conns {
				proxies[i] = proxytest.Start(t, cluster.URL(), nil)
				conns[i] = proxytest.Dial(t, proxies[i].Addr)
				conns[i].Lock(fmt.Sprintf("k%d 600 OWNER owner-%d", i, i))
			}
			for i := range conns {
				key := fmt.Sprintf("k%d", (i+1)%3)
				conns[i].Send(fmt.Sprintf("LOCK %s 600 OWNER owner-%d WAIT 600", key, i))
				if i < 2 {
					proxytest.AwaitWaiters(t, proxies[i], key, 1)
				}
			}
			got, err := conns[2].TryReply()
			if err != nil || !strings.HasPrefix(got, `-DEADLOCK "owner-2" waits for "k0", held by `+
				`"owner-0", who waits for "k1", held by "owner-1", who waits for "k2", held by `+
				`"owner-2":`) {
				t.Errorf("%q, %v", got, err)
			}
			conns[2].Expect("UNLOCK k2", ":1\r\n")
			proxytest.Token(t, conns[1].Reply())
		})
	}
}

// A cycle across two proxies at locks of masters that answer is found whichever other master is
// silent.
func TestADeadlockNextToASilentMaster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	proxies := []*proxytest.Proxy{proxytest.Start(t, cluster.URL(), nil),
		proxytest.Start(t, cluster.URL(), nil)}
	for i, silent := range cluster.Nodes {
		var keys []string // of the two others
		for n := 0; len(keys) < 2; n++ {
			key := fmt.Sprintf("d%d-%d", i, n)
			master := cluster.MasterOf(cluster.Slot(key))
			if master == silent || len(keys) == 1 && cluster.MasterOf(cluster.Slot(keys[0])) == master {
				continue
			}
			keys = append(keys, key)
		}
		var owners, looks []*proxytest.Conn
		for j, p := range proxies {
			owners = append(owners, proxytest.Dial(t, p.Addr))
			looks = append(looks, proxytest.Dial(t, p.Addr))
			looks[j].Do("GET " + keys[1-j])
			owners[j].Lock(fmt.Sprintf("%s 600 OWNER o%d", keys[j], j))
		}
		silent.Pause()
		for j, c := range owners {
			c.Send(fmt.Sprintf("LOCK %s 600 OWNER o%d WAIT 0", keys[1-j], j))
			testwait.Until(t, "it waits", func() bool {
				return looks[j].Do("LOCKINFO "+keys[1-j]+" WAITERS") != "*0\r\n"
			})
		}
		if got := owners[1].Reply(); !strings.HasPrefix(got, "-DEADLOCK ") {
			t.Errorf("with node %d silent: %q", i, got)
		}
		silent.Resume()
		for _, c := range owners {
			c.Close()
		}
	}
}
