//go:build faults

package cluster_test

import (
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// isolationLosses is how often each part of TestIsolationInACluster loses connections.
const isolationLosses = 300

// Clients get their own replies, in order, while connections are lost and replicas take their
// masters' places, by agreement and because one has died.
func TestIsolationAcrossFailovers(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := testredis.StartLinkedCluster(t, 0, 3, 1)
		in := &isolation{url: cluster.URL(), lossy: true, any: anyOf(cluster.Nodes),
			ways: []func(*testredis.Server){breakLink}}
		in.during(t, 0, func() {
			cluster.Failover(cluster.MasterOf(0))
			master := cluster.MasterOf(testredis.Slots - 1)
			cluster.KillMaster(master)
			cluster.Rejoin(t, master)
		})
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		g := testredis.StartGroup(t, testredis.GroupOptions{Linked: true})
		in := &isolation{url: g.URL(), lossy: true, any: anyOf(g.Servers),
			ways: []func(*testredis.Server){killClients}}
		in.during(t, 0, func() {
			time.Sleep(500 * time.Millisecond)
			old := g.Master()
			breakLink(old)
			g.Failover(t)
			master := g.WaitReplaced(t, old)
			time.Sleep(500 * time.Millisecond)
			breakLink(master)
			time.Sleep(500 * time.Millisecond)
			g.InSync(t)
		})
	})
}
