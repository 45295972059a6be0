package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
// next to other libraries' clients need not poll, and the holder of a session lock is told at once
// that its key is gone.
func TestClusterTracking(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p := proxytest.Start(t, cluster.URL(), nil)
	waiter := proxytest.Dial(t, p.Addr)
	wait := func(key string, node *testredis.Server) {
		t.Helper()
		node.Ask("SET", key, "random", "PX", "60000")
		waiter.Send("LOCK " + key + " 30 WAIT 20")
		proxytest.AwaitWaiters(t, p, key, 1)
		awaitTracked(t, node, 1)
		before := calls(node)
		time.Sleep(time.Second)
		if n := calls(node) - before; n > 8 {
			t.Errorf("%s: the waiter polls %d times a second", key, n)
		}
		node.Ask("DEL", key)
		began := time.Now()
		if got := waiter.Reply(); got[0] != ':' {
			t.Fatalf("%q", got)
		}
		if took := time.Since(began); took > 150*time.Millisecond+proxytest.Late() {
			t.Errorf("%s: given %v after the DEL", key, took)
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
		holder.Lock(key + " 60 SESSION")
		awaitTracked(t, node, 1)
		time.Sleep(20 * time.Millisecond) // it is verified once
		holder.Do("PING")
		node.Ask("DEL", key)
		began := time.Now()
		holder.SetReadDeadline(began.Add(5 * time.Second))
		if _, err := holder.Read(make([]byte, 1)); err == nil ||
			time.Since(began) > time.Second+proxytest.Late() {
			t.Errorf("%s: after %v: %v", key, time.Since(began), err)
		}
	}
}

// calls is how many scripts a node has run.
func calls(node *testredis.Server) (n int) {
	for line := range strings.Lines(node.Ask("INFO", "commandstats")) {
		var one int
		if _, err := fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,", &one); err == nil {
			n += one
		}
	}
	return n
}
