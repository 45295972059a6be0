package lockproxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/testredis"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// A lock that is held, and waited for at two proxies, while its slot moves: with its keys here, there, and at both.
func TestClusterLockMigrates(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p, q := startProxy(t, cluster.URL(), nil), startProxy(t, cluster.URL(), nil)
	holder, session := dial(t, p.addr), dial(t, p.addr)
	slot := cluster.Slot("{m}")
	token := holder.lock("{m}job 60")
	kept := session.lock("{m}kept 0.6 SESSION")
	var waiters []*rawConn
	for i, proxy := range []*testProxy{p, q, p} {
		w := dial(t, proxy.addr)
		w.send("LOCK {m}job 60 WAIT 30")
		waiters = append(waiters, w)
		attackWaits(t, proxy, "{m}job", i/2+1)
	}
	from := cluster.MasterOf(slot)
	to := anotherMaster(cluster, from)
	m := cluster.BeginMigration(from, to, slot)
	m.MoveKey("{m}job") // its companion is still at the old node: nobody can say anything about the lock
	free := dial(t, p.addr)
	if got := free.do("LOCK {m}job 60"); !strings.HasPrefix(got, "-TRYAGAIN ") {
		t.Errorf("LOCK while the lock and its companion are apart: %q", got)
	}
	if got := free.do("LOCK {m}new 60 WAIT 0.3"); !strings.HasPrefix(got, "-TRYAGAIN ") {
		t.Errorf("LOCK of a new one: %q", got)
	}
	m.MoveKey(lockcmd.CompanionKey([]byte("{m}job"))) // both at the new one, which doesn't serve the slot yet
	holder.expect(fmt.Sprintf("RELOCK {m}job %d 60", token), ":1\r\n")
	free.expect("LOCK {m}job 60", "$-1\r\n")
	holder.expect(unlock("{m}job", token), ":1\r\n")
	var got string
	served := -1
	eventually(t, 3*time.Second, "a waiter is served", func() bool {
		for i, w := range waiters {
			if reply, err := w.tryReply(10 * time.Millisecond); err == nil {
				got, served = reply, i
				return true
			}
		}
		return false
	})
	last := token
	for n := len(waiters); ; {
		next := attackToken(t, got)
		if next <= last {
			t.Errorf("token %d behind %d", next, last)
		}
		last = next
		waiters[served].expect(unlock("{m}job", next), ":1\r\n")
		waiters = append(waiters[:served], waiters[served+1:]...)
		if n--; n == 0 {
			break
		}
		if n == 1 {
			m.MoveKeys()
			m.Finish() // the last one is served by the new node
		}
		eventually(t, 5*time.Second, "the next waiter is served", func() bool {
			for i, w := range waiters {
				if reply, err := w.tryReply(10 * time.Millisecond); err == nil {
					got, served = reply, i
					return true
				}
			}
			return false
		})
	}
	time.Sleep(time.Second) // longer than the session lock's timeout
	session.expect(unlock("{m}kept", kept), ":1\r\n")
	if next := free.lock("{m}job 60"); next <= last {
		t.Errorf("token %d behind %d", next, last)
	}
	free.lock("{m}new 60")
}

// A slot moves while a waiter of another proxy listens for a lock in it: soon it is woken at once again.
func TestClusterWakesMigrate(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 0)
	p, q := startProxy(t, cluster.URL(), nil), startProxy(t, cluster.URL(), nil)
	holder, waiter := dial(t, p.addr), dial(t, q.addr)
	slot := cluster.Slot("job")
	from := cluster.MasterOf(slot)
	to := anotherMaster(cluster, from)
	for range 3 {
		token := holder.lock("job 60")
		waiter.send("LOCK job 60 WAIT 30")
		attackWaits(t, q, "job", 1)
		cluster.MigrateSlots(from, to, slot)
		from, to = to, from
		eventually(t, 3*time.Second, "it listens at the new node", func() bool {
			return strings.Contains(from.Ask("PUBSUB", "SHARDCHANNELS"), "lockproxy:wake:{")
		})
		if took := wakeTime(t, holder, waiter, "job", token); took > 100*time.Millisecond {
			t.Errorf("the waiter had the lock %v after its release", took)
		}
	}
}

// A master dies with locks that are held and waited for: what can't be asked is answered UPSTREAM, or as the cluster says it, waiters are
// kept, and the tokens of what was lost or not rise.
func TestClusterMasterDies(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	p := startProxy(t, cluster.URL(), withReplicas(1))
	holder, waiter, session := dial(t, p.addr), dial(t, p.addr), dial(t, p.addr)
	token := holder.lock("{a}job 60")
	kept := session.lock("{a}kept 20 SESSION")
	waiter.send("LOCK {a}job 60 WAIT 30")
	attackWaits(t, p, "{a}job", 1)
	master := cluster.MasterOf(cluster.Slot("{a}"))
	elsewhere := ""
	for i := 0; elsewhere == ""; i++ {
		if key := fmt.Sprint("job", i); cluster.MasterOf(cluster.Slot(key)) != master {
			elsewhere = key
		}
	}
	replica := cluster.ReplicaOf(master)
	master.Kill()
	killed, errors := time.Now(), 0
	for replica.Role() != "master" {
		c := dial(t, p.addr)
		c.send("LOCK {a}other 60")
		got, err := c.tryReply(5 * time.Second)
		switch {
		case err != nil:
			t.Errorf("no answer while the master is gone: %v", err)
		case strings.HasPrefix(got, "-UPSTREAM "), strings.HasPrefix(got, "-CLUSTERDOWN "):
			errors++
		case got[0] != ':' && got != "$-1\r\n" && !strings.HasPrefix(got, "-NOREPLICAS "):
			t.Errorf("while the master is gone: %q", got)
		}
		began := time.Now()
		c = dial(t, p.addr)
		c.expect(unlock(elsewhere, c.lock(elsewhere+" 60")), ":1\r\n") // the others serve on
		if took := time.Since(began); took > time.Second {
			t.Errorf("a lock at another node took %v", took)
		}
		c.Close()
	}
	if errors == 0 {
		t.Error("nobody was told that the master is gone")
	}
	cluster.WaitReplaced(replica)
	t.Logf("replaced %v after its death, %d were told", time.Since(killed).Round(time.Millisecond), errors)
	cluster.Rejoin(t, master) // so that there is a replica again
	holder = dial(t, p.addr)
	eventually(t, 5*time.Second, "the replica acknowledges", func() bool { return holder.do("LOCK {a}again 60 OWNER me")[0] == ':' })
	eventually(t, 5*time.Second, "the lock can be released", func() bool { return holder.do(unlock("{a}job", token)) == ":1\r\n" })
	if next := attackToken(t, waiter.reply()); next <= token {
		t.Errorf("token %d behind %d", next, token)
	}
	session.expect(fmt.Sprintf("FENCE {a}kept %d SET {a}x 1", kept), "+OK\r\n")
}

// Session locks of a client that goes while their master is gone are released by the one that takes its place.
func TestClusterOrphans(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 3, 1, "--cluster-node-timeout", "2500")
	p := startProxy(t, cluster.URL(), withReplicas(1))
	session := dial(t, p.addr)
	for i := range 3 {
		session.lock(fmt.Sprintf("{a}job%d 600 SESSION", i))
	}
	master := cluster.MasterOf(cluster.Slot("{a}"))
	replica := cluster.ReplicaOf(master)
	master.Kill()
	session.Close()
	cluster.WaitReplaced(replica)
	plain := dial(t, startProxy(t, cluster.URL(), nil).addr)
	for i := range 3 {
		eventually(t, 6*time.Second, "the lock is free", func() bool { return plain.do(fmt.Sprintf("LOCK {a}job%d 600 OWNER me", i))[0] == ':' })
	}
}

// With --failover-hold no lock is given out for a while behind a replica's having taken a master's place; a slot that moves is none.
func TestClusterFailoverHold(t *testing.T) {
	t.Parallel()
	const hold = 1500 * time.Millisecond
	cluster := testredis.StartCluster(t, 3, 1)
	p := startProxy(t, cluster.URL(), func(cfg *proxy.Config) { cfg.Locks.Durability.FailoverHold = hold })
	c := dial(t, p.addr)
	token := c.lock("job 30")
	slot := cluster.Slot("job")
	from := cluster.MasterOf(slot)
	cluster.MigrateSlots(from, anotherMaster(cluster, from), slot)
	time.Sleep(1200 * time.Millisecond) // the proxy looks once a second
	c.expect(unlock("other", c.lock("other 30")), ":1\r\n")

	cluster.Failover(cluster.MasterOf(slot))
	began := time.Now()
	eventually(t, 3*time.Second, "the proxy has seen it", func() bool {
		got := c.do("LOCK other 30 OWNER me")
		return strings.HasPrefix(got, "-UPSTREAM was replaced by another server: ")
	})
	c.expect(fmt.Sprintf("RELOCK job %d 30", token), ":1\r\n")
	c.expect("LOCK fourth 30 WAIT 0.1", "-UPSTREAM was replaced …")
	c.lock("third 30 WAIT 5")
	if took := time.Since(began); took < hold-500*time.Millisecond || took > hold+1500*time.Millisecond {
		t.Errorf("given out again after %v", took)
	}
}
