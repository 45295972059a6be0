package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// tracked is how many keys a node tracks.
func tracked(node *testredis.Server) string {
	_, after, _ := strings.Cut(node.Ask("INFO", "stats"), "\r\ntracking_total_keys:")
	n, _, _ := strings.Cut(after, "\r\n")
	return n
}

// awaitTracked waits until the node of a key tracks so many keys.
func awaitTracked(t *testing.T, node *testredis.Server, keys int) {
	t.Helper()
	if !testwait.Holds(func() bool { return tracked(node) == fmt.Sprint(keys) }) {
		t.Fatalf("%s keys are tracked, want %d", tracked(node), keys)
	}
}

// untrack makes a node forget a key, which the proxy may have read once more after it was gone.
func untrack(t *testing.T, node *testredis.Server, key string) {
	t.Helper()
	testwait.Until(t, "no key is tracked", func() bool {
		node.Ask("SET", key, "x")
		node.Ask("DEL", key)
		return tracked(node) == "0"
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
		untrack(t, node, key)
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
		token := holder.Lock(key + " 600 SESSION")
		if !testwait.Holds(func() bool { return tracked(node) == "1" }) {
			// The node was so slow that the proxy does without for half a minute.
			holder.Expect(proxytest.Unlock(key, token), ":1\r\n")
			holder.Lock(key + " 600 SESSION")
			awaitTracked(t, node, 1)
		}
		node.Ask("DEL", key)
		holder.Closed() // long before the lock is renewed
		untrack(t, node, key)
	}
}

// A client with CLIENT TRACKING that locks is told of the keys that it has read, and not of the
// records of locks, on whichever nodes they are.
func TestTrackingClientsInAClusterAreNotToldOfRecords(t *testing.T) {
	t.Parallel()
	if proxytest.Dedicated {
		return // each client has its own connections there, which track all that is read
	}
	cluster := testredis.StartCluster(t, 3, 0)
	p := proxytest.Start(t, cluster.URL(), nil)
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	c.Do("HELLO 3")
	c.Expect("CLIENT TRACKING ON", "+OK\r\n")
	told := ""
	ask := func(command string) {
		c.Send(command)
		reply := c.Reply()
		for ; reply[0] == '>'; reply = c.Reply() {
			told += reply
		}
		if reply[0] == '-' {
			t.Fatalf("%s: %q", command, reply)
		}
	}
	keys := []string{"a", "b", "c", "d"} // on all nodes
	for _, key := range keys {
		ask("GET " + key)
		ask("LOCK " + key + " 600")
	}
	for _, key := range keys {
		other.Expect("UNLOCK "+key+" FORCE", ":1\r\n")
		ask("GET marker:" + key)
		other.Lock(key + " 600")
		cluster.MasterOf(cluster.Slot("marker:"+key)).Ask("SET", "marker:"+key, "1")
		for !strings.Contains(told, "\r\nmarker:"+key+"\r\n") {
			told += c.Reply()
		}
	}
	for _, key := range keys {
		if n := strings.Count(told, "\r\n"+key+"\r\n"); n != 1 {
			t.Errorf("told %d times of %s, which it has read once", n, key)
		}
	}
	if strings.Contains(told, ":lockproxy:") {
		t.Errorf("told of records: %q", told)
	}
}
