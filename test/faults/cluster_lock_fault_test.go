//go:build faults && linux

package faults_test

import (
	"strconv"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

type clusterWork = underWork[*testredis.Cluster]

var clusterFaults = []fault[*testredis.Cluster]{
	{"slots of hot keys migrate", false, false,
		func(t *testing.T, u *clusterWork, key string) func() {
			c := u.servers
			slot := c.Slot(key)
			from := c.MasterOf(slot)
			c.MigrateSlots(from, proxytest.AnotherMaster(c, from), slot)
			return nil
		}},
	{"manual failover", false, true, func(t *testing.T, u *clusterWork, key string) func() {
		c := u.servers
		c.Failover(c.MasterOf(c.Slot(key)))
		return nil
	}},
	{"node added and removed", false, false,
		func(t *testing.T, u *clusterWork, key string) func() {
			c := u.servers
			slot := c.Slot(key)
			from := c.MasterOf(slot)
			added := c.AddNode()
			c.MigrateSlots(from, added, slot)
			u.goOn(t, betweenSteps)
			c.MigrateAll(added, from)
			c.RemoveNode(added)
			c.WaitOK()
			return nil
		}},
	{"links to a master cut", false, false,
		func(t *testing.T, u *clusterWork, key string) func() {
			cut(t, u.servers.MasterOf(u.servers.Slot(key)), u.plain)
			return nil
		}},
	{"master killed", true, true, func(t *testing.T, u *clusterWork, key string) func() {
		c := u.servers
		master := c.MasterOf(c.Slot(key))
		c.KillMaster(master)
		return func() { c.Rejoin(t, master) }
	}},
	{"master stopped", true, true, func(t *testing.T, u *clusterWork, key string) func() {
		c := u.servers
		master := c.MasterOf(c.Slot(key))
		replica := c.ReplicaOf(master)
		master.Pause()
		c.WaitReplaced(replica)
		return func() {
			u.plain.goOn(t, afterReplacing) // the others need all replicas
			master.Resume()
			c.WaitOK()
			master.WaitInSync()
		}
	}},
}

// cut ends the connections that the proxies have to a server, and those that follow once clients
// take locks by them.
func cut(t *testing.T, server *testredis.Server, w *work) {
	t.Helper()
	for range 3 {
		server.CutClients()
		w.goOn(t, 3)
	}
}

// patience is after how long the nodes take a silent one for dead.
func startClusterUnderWork(t *testing.T, patience time.Duration) *clusterWork {
	timeout := strconv.FormatInt(patience.Milliseconds(), 10)
	c := testredis.StartCluster(t, 3, 1, "--cluster-node-timeout", timeout)
	return startUnderWork(t, c, c.URL(), 1)
}

// Each cluster fault by itself, again and again while clients work.
func TestClusterLockFault(t *testing.T) {
	for _, f := range clusterFaults {
		t.Run(f.name, func(t *testing.T) {
			// so that a busy machine doesn't look like dead nodes
			u := startClusterUnderWork(t, 2*time.Second)
			u.work(t, "", 1)
			for range 2 {
				u.inflict(t, f, u.keys(2)...)
			}
			u.finish(t, f.loses)
		})
	}
}

// Locks and data continue while slots move, a master is replaced by hand, and one is killed.
// TestClusterLockFault has the other faults.
func TestClusterLocksGoOn(t *testing.T) {
	t.Parallel()
	u := startClusterUnderWork(t, time.Second)
	u.work(t, "", 1)
	for _, f := range clusterFaults {
		switch f.name {
		case "slots of hot keys migrate":
			u.inflict(t, f, u.keys(2)...)
		case "manual failover", "master killed":
			u.inflict(t, f, u.keys(1)...)
		}
	}
	u.finish(t, true)
}
