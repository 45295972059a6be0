//go:build faults

package cluster_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// isolationLosses is how often each part of TestIsolationInACluster loses connections.
const isolationLosses = 300

// relays returns when a proxy has relayed some more requests of the clients.
func relays(t *testing.T, p *proxytest.Proxy) {
	t.Helper()
	enough := p.Server.Stats().Commands[proxy.Relayed] + 500
	testwait.Until(t, "requests are relayed",
		func() bool { return p.Server.Stats().Commands[proxy.Relayed] >= enough })
}

// Clients get their own replies, in order, while connections are lost and replicas take their
// masters' places, by agreement and because one has died.
func TestIsolationAcrossFailovers(t *testing.T) {
	t.Parallel()
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := testredis.StartLinkedCluster(t, 0, 3, 1)
		in := &isolation{url: cluster.URL(), lossy: true, any: anyOf(cluster.Nodes),
			ways: []func(*testredis.Server){breakLink}}
		in.during(t, 0, func(*proxytest.Proxy) {
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
		in.during(t, 0, func(p *proxytest.Proxy) {
			relays(t, p)
			old := g.Master()
			breakLink(old)
			g.Failover(t)
			master := g.WaitReplaced(t, old)
			relays(t, p)
			breakLink(master)
			relays(t, p)
			g.InSync(t)
		})
	})
}
