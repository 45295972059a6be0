package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// The client of a connection that a node closes because it is idle does not notice, as it is opened
// again when it is needed. That of one that waits for a lock, at whichever node, is not idle: the
// proxy sends something to all its nodes, here as often as where it may not ask for their timeout.
func TestWaitersInAClusterAreNotIdle(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	for _, node := range cluster.Nodes {
		node.Ask("ACL", "SETUSER", "default", "-config")
	}
	p := proxytest.Start(t, cluster.URL(), nil)
	ctx, cancel := context.WithCancel(context.Background())
	checked := make(chan struct{})
	go func() { // ends with the test
		defer close(checked)
		p.Server.CheckUpstream(ctx)
	}()
	defer func() { cancel(); <-checked }()

	holder := proxytest.Dial(t, p.Addr)
	var keys []string
	var tokens []int64
	var waiters []*proxytest.Conn
	for i, node := range cluster.Nodes {
		key := fmt.Sprint("job", i)
		for n := 0; cluster.MasterOf(cluster.Slot(key)) != node; n++ {
			key = fmt.Sprintf("job%d-%d", i, n)
		}
		keys = append(keys, key)
		tokens = append(tokens, holder.Lock(key+" 600 SESSION"))
		waiter := proxytest.Dial(t, p.Addr)
		waiter.Expect("CLIENT SETNAME waiter", "+OK\r\n") // by its home, at all nodes
		waiter.Send("LOCK " + key + " 600 WAIT 0")
		waiters = append(waiters, waiter)
		proxytest.AwaitWaiters(t, p, key, 1)
	}
	idle := proxytest.Dial(t, p.Addr)
	idle.Expect("CLIENT SETNAME idle", "+OK\r\n")
	// connections are those of a name, by what they have asked last.
	connections := func(node *testredis.Server, name, last string) (ids []string) {
		for line := range strings.Lines(node.Ask("CLIENT", "LIST")) {
			if strings.Contains(line, " name="+name+" ") && strings.Contains(line, " cmd="+last) {
				ids = append(ids, strings.TrimPrefix(strings.Fields(line)[0], "id="))
			}
		}
		return ids
	}
	for _, node := range cluster.Nodes {
		testwait.Until(t, "waiters are not idle", func() bool {
			asked := len(connections(node, "waiter", "time"))
			return asked > 0 && asked == len(connections(node, "waiter", ""))
		})
		if n := len(connections(node, "idle", "time")); n > 0 {
			t.Errorf("%d connections of the idle client are kept", n)
		}
		for _, id := range connections(node, "idle", "") {
			node.Ask("CLIENT", "KILL", "ID", id)
		}
	}
	got := ""
	testwait.Until(t, "it is answered", func() bool { // the proxy may not have heard of the end yet
		got = idle.Do("CLIENT GETNAME")
		return !strings.HasPrefix(got, "-UPSTREAM ")
	})
	if got != wire.Bulk("idle") {
		t.Errorf("CLIENT GETNAME: %q", got)
	}
	for i, key := range keys {
		holder.Expect(proxytest.Unlock(key, tokens[i]), ":1\r\n")
		waiters[i].Expect(proxytest.Unlock(key, proxytest.Token(t, waiters[i].Reply())), ":1\r\n")
	}
}

// A lock whose token a client has not read when it dies is released soon, though a master is silent
// that the client has asked, too.
func TestUnreadTokenNextToASilentMaster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	p := proxytest.StartBy(t, testredis.TCP, cluster.URL(), nil)
	q := proxytest.Start(t, cluster.URL(), nil)
	silent := cluster.MasterOf(cluster.Slot("used"))
	key := "job"
	for n := 0; cluster.MasterOf(cluster.Slot(key)) == silent; n++ {
		key = fmt.Sprintf("job%d", n)
	}
	next, dying := proxytest.Dial(t, q.Addr), make([]*proxytest.Conn, 5)
	for i := range dying {
		dying[i] = proxytest.Dial(t, p.Addr)
	}
	for _, c := range append(dying, next) { // whether they must log in is known from now on
		c.Expect("EXISTS "+key, ":0\r\n")
	}
	silent.Pause()
	t.Cleanup(silent.Resume)
	for i, c := range dying { // a reset that the load of the machine delays says nothing
		lock := fmt.Sprintf("{%s}%d", key, i)
		taken := func() bool { return next.Do("EXISTS "+lock) == ":1\r\n" }
		c.Send("LOCK "+lock+" 600", "GET used")
		testwait.Until(t, "the lock is taken", taken)
		before := connections(p)
		c.Close() // its kernel sends a reset, since it has not read the token
		testwait.Until(t, "it is released, or its client uses no connection", func() bool {
			return !taken() || connections(p) < before
		})
		if connections(p) == before {
			return
		}
	}
	t.Error("no lock was released while its client was owed an answer by the silent master")
}
