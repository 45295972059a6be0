//go:build faults && linux

package faults_test

import (
	"strconv"
	"testing"
	"time"

	"lockproxy/internal/faults/history"
	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// clusterFault is done to a cluster while clients work.
type clusterFault struct {
	name string
	// loses says that the cluster can lose acknowledged writes,
	// since a replica that lacks them can replace a master.
	loses bool
	// replaces says that a replica replaces a master by vote.
	replaces bool
	do       func(t *testing.T, c *testredis.Cluster, slot int) // slot has a lock that is in use
}

var clusterFaults = []clusterFault{
	{"slots of hot keys migrate", false, false, func(t *testing.T, c *testredis.Cluster, slot int) {
		from := c.MasterOf(slot)
		c.MigrateSlots(from, proxytest.AnotherMaster(c, from), slot)
	}},
	{"manual failover", false, true, func(t *testing.T, c *testredis.Cluster, slot int) {
		c.Failover(c.MasterOf(slot))
	}},
	{"node added and removed", false, false, func(t *testing.T, c *testredis.Cluster, slot int) {
		from := c.MasterOf(slot)
		added := c.AddNode()
		c.MigrateSlots(from, added, slot)
		time.Sleep(500 * time.Millisecond)
		c.MigrateAll(added, from)
		c.RemoveNode(added)
		c.WaitOK()
	}},
	{"master killed", true, true, func(t *testing.T, c *testredis.Cluster, slot int) {
		master := c.MasterOf(slot)
		c.KillMaster(master)
		c.Rejoin(t, master)
	}},
	{"master stopped", true, true, func(t *testing.T, c *testredis.Cluster, slot int) {
		master := c.MasterOf(slot)
		replica := c.ReplicaOf(master)
		master.Pause()
		c.WaitReplaced(replica)
		time.Sleep(300 * time.Millisecond)
		master.Resume()
		c.WaitOK()
		master.WaitInSync()
	}},
}

// breaks is what can be untrue of the history because of a fault. It leaves out what is never
// allowed, and what is counted.
func (f clusterFault) breaks() history.Breaks {
	return history.Breaks{Service: true, Orphans: true, Writes: f.loses}
}

// A clusterUnderWork is a cluster behind two proxies with --min-replicas and two without.
type clusterUnderWork struct {
	*testredis.Cluster
	plain, safe *clusterWork
	patience    time.Duration
}

// patience is after how long the nodes take a silent one for dead.
func startClusterUnderWork(t *testing.T, patience time.Duration) *clusterUnderWork {
	timeout := strconv.FormatInt(patience.Milliseconds(), 10)
	c := &clusterUnderWork{Cluster: testredis.StartCluster(t, 3, 1, "--cluster-node-timeout",
		timeout), patience: patience}
	safe := func(cfg *proxy.Config) {
		cfg.Locks.Durability = lockcmd.Durability{MinReplicas: 1,
			ReplicaTimeout: 300 * time.Millisecond}
	}
	c.plain = startClusterWork(t, "plain", proxytest.Start(t, c.URL(), nil),
		proxytest.Start(t, c.URL(), nil))
	c.safe = startClusterWork(t, "safe", proxytest.Start(t, c.URL(), safe),
		proxytest.Start(t, c.URL(), safe))
	time.Sleep(time.Second)
	return c
}

// inflict does a fault to the slots of some locks of both works.
func (c *clusterUnderWork) inflict(t *testing.T, f clusterFault, locks int) {
	t.Helper()
	for _, w := range []*clusterWork{c.plain, c.safe} {
		for _, key := range w.keys[:locks] {
			from := history.Now()
			f.do(t, c.Cluster, c.Slot(key))
			for _, noted := range []*clusterWork{c.plain, c.safe} {
				noted.during(f.name, from, history.Now(), f.breaks())
			}
			time.Sleep(300 * time.Millisecond)
			if f.replaces {
				time.Sleep(2 * c.patience) // for so long no node votes about the same master again
			}
		}
	}
}

// finish judges both. loses says that locks without --min-replicas can have been lost.
func (c *clusterUnderWork) finish(t *testing.T, loses bool) {
	t.Helper()
	time.Sleep(1500 * time.Millisecond)
	never := []string{"answer", "tokens", "service", "writes"}
	locks := []string{"exclusion", "limit", "lost", "stale", "order", "fence", "idle"}
	for _, w := range []*clusterWork{c.plain, c.safe} {
		v := w.end()
		t.Logf("%s: %v%s", w.name, v, v.timeline())
		for kind, n := range v.taken() {
			if n == 0 {
				t.Errorf("%s: no lock of the kind %s was taken", w.name, kind)
			}
		}
		for _, text := range v.broken(never...) {
			t.Errorf("%s: %s", w.name, text)
		}
		for _, text := range v.broken("fifo") { // a failover can upset the order
			if loses {
				t.Logf("found: %s", text)
			} else {
				t.Errorf("%s: %s", w.name, text)
			}
		}
		for _, text := range v.broken(locks...) {
			if loses && w == c.plain {
				t.Logf("found without --min-replicas: %s", text)
			} else {
				t.Errorf("%s: %s", w.name, text)
			}
		}
	}
}
