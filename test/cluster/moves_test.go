package cluster_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd/keyname"
	"lockproxy/proxy"
)

// While a slot moves, its old master cannot write a key that it has deleted. A LOCK that needs a
// new record for a shared lock is refused there. An UNLOCK in favour of a reader frees the lock.
// Neither leaves a lock that nobody holds.
func TestSharedLocksWhileTheirSlotMoves(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 2, 0)
	p := proxytest.Start(t, cluster.URL(), nil)
	holder, other, reader := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	from := cluster.MasterOf(cluster.Slot("{m}"))
	holder.Lock("{m}over 600")
	from.Ask("SET", "{m}over", "1600000000000") // a foreign client's, which expired long ago
	given := holder.Lock("{m}given 600")
	reader.Send("LOCK {m}given 600 SHARED WAIT 600")
	proxytest.AwaitWaiters(t, p, "{m}given", 1)
	m := cluster.BeginMigration(from, proxytest.AnotherMaster(cluster, from), cluster.Slot("{m}"))

	other.Expect("LOCK {m}over 600 SHARED", "-TRYAGAIN …")
	if got := from.Ask("GET", "{m}over"); got != "1600000000000" {
		t.Errorf("a LOCK that was refused has left %q", got)
	}
	holder.Expect(proxytest.Unlock("{m}given", given), ":1\r\n")
	m.MoveKeys()
	m.Finish()
	if got := proxytest.Token(t, reader.Reply()); got <= given {
		t.Errorf("token %d after %d", got, given)
	}
	other.Lock("{m}over 600 SHARED")
	other.Lock("{m}given 600 SHARED")
}

// A lock that is held, and waited for at two proxies, while its slot moves: with its keys here,
// there, and at both.
func TestClusterLockMigrates(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p, q := proxytest.Start(t, cluster.URL(), nil), proxytest.Start(t, cluster.URL(), nil)
	holder, session := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	slot := cluster.Slot("{m}")
	token := holder.Lock("{m}job 600")
	kept := session.Lock("{m}kept 600 SESSION")
	var waiters []*proxytest.Conn
	for i, proxy := range []*proxytest.Proxy{p, q, p} {
		w := proxytest.Dial(t, proxy.Addr)
		w.Send("LOCK {m}job 600 WAIT 600")
		waiters = append(waiters, w)
		proxytest.AwaitWaiters(t, proxy, "{m}job", i/2+1)
	}
	from := cluster.MasterOf(slot)
	to := proxytest.AnotherMaster(cluster, from)
	m := cluster.BeginMigration(from, to, slot)
	// its record is still at the old node: no node can say anything about the lock
	m.MoveKey("{m}job")
	free := proxytest.Dial(t, p.Addr)
	if got := free.Do("LOCK {m}job 600"); !strings.HasPrefix(got, "-TRYAGAIN ") {
		t.Errorf("LOCK while the lock and its record are apart: %q", got)
	}
	testwait.Until(t, "LOCK of a new one is told to try again", func() bool {
		got := free.Do("LOCK {m}new 600 WAIT 2")
		if got[0] != '-' {
			t.Fatalf("LOCK of a new one: %q", got)
		}
		return strings.HasPrefix(got, "-TRYAGAIN ") // not if the last try has no answer in time
	})
	// both at the new one, which doesn't serve the slot yet
	m.MoveKey(keyname.Record([]byte("{m}job")))
	// On a loaded machine RELOCK was told to try again once, for a reason that is not known.
	testwait.Until(t, "its holder is answered", func() bool {
		got := holder.Do(fmt.Sprintf("RELOCK {m}job %d 600", token))
		if got != ":1\r\n" && !strings.HasPrefix(got, "-TRYAGAIN ") {
			t.Fatalf("RELOCK: %q", got)
		}
		return got[0] == ':'
	})
	free.Expect("LOCK {m}job 600", "$-1\r\n")
	holder.Expect(proxytest.Unlock("{m}job", token), ":1\r\n")
	var got string
	served := -1
	testwait.Until(t, "a waiter is served", func() bool {
		for i, w := range waiters {
			if w.Arrived() {
				got, served = w.Reply(), i
				return true
			}
		}
		return false
	})
	last := token
	for n := len(waiters); ; {
		next := proxytest.Token(t, got)
		if next <= last {
			t.Errorf("token %d behind %d", next, last)
		}
		last = next
		waiters[served].Expect(proxytest.Unlock("{m}job", next), ":1\r\n")
		waiters = append(waiters[:served], waiters[served+1:]...)
		if n--; n == 0 {
			break
		}
		if n == 1 {
			m.MoveKeys()
			m.Finish() // the last one is served by the new node
		}
		testwait.Until(t, "the next waiter is served", func() bool {
			for i, w := range waiters {
				if w.Arrived() {
					got, served = w.Reply(), i
					return true
				}
			}
			return false
		})
	}
	session.Expect(proxytest.Unlock("{m}kept", kept), ":1\r\n")
	if next := free.Lock("{m}job 600"); next <= last {
		t.Errorf("token %d behind %d", next, last)
	}
	free.Lock("{m}new 600")
}

// A slot moves while a waiter of another proxy listens for a lock in it: it listens at the new
// node, and is woken there.
func TestClusterWakesMigrate(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p, q := proxytest.Start(t, cluster.URL(), nil), proxytest.Start(t, cluster.URL(), nil)
	holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, q.Addr)
	slot := cluster.Slot("job")
	from := cluster.MasterOf(slot)
	to := proxytest.AnotherMaster(cluster, from)
	for range 3 {
		token := holder.Lock("job 600")
		waiter.Send("LOCK job 600 WAIT 600")
		proxytest.AwaitWaiters(t, q, "job", 1)
		cluster.MigrateSlots(from, to, slot)
		from, to = to, from
		testwait.Until(t, "it listens at the new node", func() bool {
			return len(wakeChannels(from, "spublish")) > 0
		})
		wake(t, from, "spublish", holder, waiter, "job", token)
	}
}

// A master dies with locks that are held and waited for: what can't be asked is answered UPSTREAM,
// or as the cluster says it, waiters are kept, and the tokens of what was lost or not rise.
func TestClusterMasterDies(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	p := proxytest.Start(t, cluster.URL(), proxytest.WithReplicas(1))
	safe := proxytest.Start(t, cluster.URL(), proxytest.WithSlowReplicas(1))
	holder, waiter, session := proxytest.Dial(t, safe.Addr), proxytest.Dial(t, safe.Addr),
		proxytest.Dial(t, safe.Addr)
	token := holder.Lock("{a}job 600")
	kept := session.Lock("{a}kept 600 SESSION")
	waiter.Send("LOCK {a}job 600 WAIT 600")
	proxytest.AwaitWaiters(t, safe, "{a}job", 1)
	master := cluster.MasterOf(cluster.Slot("{a}"))
	elsewhere := ""
	for i := 0; elsewhere == ""; i++ {
		if key := fmt.Sprint("job", i); cluster.MasterOf(cluster.Slot(key)) != master {
			elsewhere = key
		}
	}
	replica := cluster.ReplicaOf(master)
	master.Kill()
	for errors := 0; errors < 3; {
		c := proxytest.Dial(t, p.Addr)
		c.Send("LOCK {a}other 600")
		got, err := c.TryReply()
		switch {
		case err != nil:
			t.Fatalf("no answer while the master is gone: %v", err)
		case strings.HasPrefix(got, "-UPSTREAM "), strings.HasPrefix(got, "-CLUSTERDOWN "):
			errors++
		case got[0] != ':' && got != "$-1\r\n" && !strings.HasPrefix(got, "-NOREPLICAS "):
			t.Errorf("while the master is gone: %q", got)
		}
		c = proxytest.Dial(t, p.Addr)
		testwait.Until(t, "the others serve on", func() bool {
			got := c.Do("LOCK " + elsewhere + " 600")
			if strings.HasPrefix(got, "-NOREPLICAS ") { // the machine has stopped its replica
				return false
			}
			c.Expect(proxytest.Unlock(elsewhere, proxytest.Token(t, got)), ":1\r\n")
			return true
		})
		c.Close()
	}
	cluster.WaitReplaced(replica)
	cluster.Rejoin(t, master) // so that there is a replica again
	holder = proxytest.Dial(t, p.Addr)
	testwait.Until(t, "the replica acknowledges",
		func() bool { return holder.Do("LOCK {a}again 600 OWNER me")[0] == ':' })
	testwait.Until(t, "the lock can be released",
		func() bool { return holder.Do(proxytest.Unlock("{a}job", token)) == ":1\r\n" })
	if next := proxytest.Token(t, waiter.Reply()); next <= token {
		t.Errorf("token %d behind %d", next, token)
	}
	session.Expect(fmt.Sprintf("FENCE {a}kept %d SET {a}x 1", kept), "+OK\r\n")
}

// Session locks of a client that goes while their master is gone are released by the one that takes
// its place.
func TestClusterOrphans(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1)
	p := proxytest.Start(t, cluster.URL(), proxytest.WithSlowReplicas(1))
	session := proxytest.Dial(t, p.Addr)
	for i := range 3 {
		session.Lock(fmt.Sprintf("{a}job%d 600 SESSION", i))
	}
	master := cluster.MasterOf(cluster.Slot("{a}"))
	replica := cluster.ReplicaOf(master)
	master.Kill()
	session.Close()
	cluster.WaitReplaced(replica)
	plain := proxytest.Dial(t, proxytest.Start(t, cluster.URL(), nil).Addr)
	for i := range 3 {
		testwait.Until(t, "the lock is free",
			func() bool { return plain.Do(fmt.Sprintf("LOCK {a}job%d 600 OWNER me", i))[0] == ':' })
	}
}

// With --failover-hold no lock is given out for a while behind a replica's having taken a master's
// place; a slot that moves is none.
func TestClusterFailoverHold(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1)
	start := func(hold time.Duration) *proxytest.Conn {
		return proxytest.Dial(t, proxytest.Start(t, cluster.URL(), func(cfg *proxy.Config) {
			cfg.Locks.Durability.FailoverHold = hold
		}).Addr)
	}
	long, short := start(time.Hour), start(time.Second)
	token := long.Lock("job 600")
	slot := cluster.Slot("job")
	from := cluster.MasterOf(slot)
	to := proxytest.AnotherMaster(cluster, from)
	cluster.MigrateSlots(from, to, slot)
	long.Expect(fmt.Sprintf("RELOCK job %d 600", token), ":1\r\n") // it has noticed
	long.Expect(proxytest.Unlock("other", long.Lock("other 600")), ":1\r\n")

	// A script that makes up the same is not believed.
	other := cluster.MasterOf(cluster.Slot("other"))
	madeUp := fmt.Sprintf("MOVED %d %s", cluster.Slot("other"), cluster.ReplicaOf(other).Addr())
	script := "return{err='" + strings.ReplaceAll(madeUp, " ", "\\032") + "'}"
	long.Expect("EVAL "+script+" 1 other", "-"+madeUp+"\r\n")
	long.Expect(proxytest.Unlock("other", long.Lock("other 600")), ":1\r\n")

	cluster.Failover(to)
	testwait.Until(t, "the proxy has seen it", func() bool {
		got := long.Do("LOCK other 600 OWNER me")
		return strings.HasPrefix(got, "-UPSTREAM was replaced by another server: ")
	})
	long.Expect(fmt.Sprintf("RELOCK job %d 600", token), ":1\r\n")
	long.Expect("LOCK fourth 600 WAIT 0.1", "-UPSTREAM was replaced …")
	short.Lock("third 600 WAIT 600") // behind its hold
}
