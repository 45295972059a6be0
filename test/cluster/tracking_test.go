package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// awaitTracked waits until the node of a key tracks so many keys.
func awaitTracked(t *testing.T, node *testredis.Server, keys int) {
	t.Helper()
	want := fmt.Sprintf("\r\ntracking_total_keys:%d\r\n", keys)
	testwait.Until(t, "the key is tracked", func() bool {
		return strings.Contains(node.Ask("INFO", "stats"), want)
	})
}

// Each node tells of the keys that it has, also of those that came to it from another: a waiter
// next to other libraries' clients, and the holder of a session lock, are told that the key is gone.
func TestClusterTracking(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p := proxytest.Start(t, cluster.URL(), nil)
	waiter := proxytest.Dial(t, p.Addr)
	wait := func(key string, node *testredis.Server) {
		t.Helper()
		node.Ask("SET", key, "random", "PX", "600000")
		waiter.Send("LOCK " + key + " 600 WAIT 600")
		proxytest.AwaitWaiters(t, p, key, 1)
		awaitTracked(t, node, 1)
		node.Ask("DEL", key)
		if got := waiter.Reply(); got[0] != ':' {
			t.Fatalf("%q", got)
		}
		waiter.Expect("UNLOCK "+key, ":1\r\n")
	}
	for _, key := range []string{"a", "b", "c", "d"} { // on all nodes
		wait(key, cluster.MasterOf(cluster.Slot(key)))
	}
	from := cluster.MasterOf(cluster.Slot("a"))
	to := proxytest.AnotherMaster(cluster, from)
	cluster.Migrate(cluster.Slot("a"), to)
	wait("a", to)

	for _, key := range []string{"x", "y", "z"} {
		node := cluster.MasterOf(cluster.Slot(key))
		holder := proxytest.Dial(t, p.Addr)
		holder.Lock(key + " 600 SESSION")
		awaitTracked(t, node, 1)
		node.Ask("DEL", key)
		holder.Closed() // long before the lock is renewed
	}
}
