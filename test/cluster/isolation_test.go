package cluster_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// breakLink ends connections of clients to a server as networks do.
func breakLink(server *testredis.Server) {
	link := server.Link
	switch rand.IntN(6) {
	case 0:
		link.Cut()
	case 1:
		link.Reset()
	case 2: // replies are lost
		link.HoldReplies()
		looks := 0
		testwait.Holds(func() bool { looks++; return link.Holding() || looks > 20 })
		link.Cut()
		link.Release()
	default: // within a reply
		link.Tear([]string{".", "\r\n$", "*", "+", ":"}[rand.IntN(5)], rand.IntN(2),
			rand.IntN(2) == 0)
	}
}

// killClients ends connections of clients, but not those of Sentinels, as servers and operators do.
func killClients(server *testredis.Server) {
	all := rand.IntN(8) == 0
	for line := range strings.Lines(server.Ask("CLIENT", "LIST")) {
		id, _ := strings.CutPrefix(strings.Fields(line)[0], "id=")
		link := strings.Contains(line, "name=sentinel") || strings.Contains(line, "flags=S") ||
			strings.Contains(line, "flags=M")
		if !link && (all || rand.IntN(8) == 0) {
			server.Ask("CLIENT", "KILL", "ID", id)
		}
	}
}

// losses ends connections again and again while a proxy's clients ask, until stop is called. n is
// how often it has.
func (in *isolation) losses(p *proxytest.Proxy) (n *atomic.Int64, stop func()) {
	n = &atomic.Int64{}
	stopped := make(chan struct{})
	var losing sync.WaitGroup
	losing.Go(func() { // ends when stopped; stop waits for it
		for !isOver(stopped) {
			next := p.Server.Stats().Commands[proxy.Relayed] + 50 + rand.Uint64N(150)
			if testwait.Holds(func() bool {
				return isOver(stopped) || p.Server.Stats().Commands[proxy.Relayed] >= next
			}) {
				in.ways[rand.IntN(len(in.ways))](in.any())
				n.Add(1)
			}
		}
	})
	return n, func() {
		close(stopped)
		losing.Wait()
	}
}

// isolation is marked clients of a proxy in front of several servers.
type isolation struct {
	url   string
	lossy bool // failovers lose what was acknowledged
	first int  // the number of the first client
	any   func() *testredis.Server
	ways  []func(*testredis.Server) // in which connections are lost
}

// during runs the clients while do runs, in both modes, and connections have been lost so often.
func (in *isolation) during(t *testing.T, enough int64, do func(*proxytest.Proxy)) {
	for _, dedicated := range []bool{false, true} {
		p := proxytest.Start(t, in.url, func(cfg *proxy.Config) {
			cfg.Dedicated, cfg.UpstreamConns = dedicated, 2
		})
		over, ended := make(chan struct{}), make(chan *tally)
		go func() { ended <- runMarked(t, p.Addr, in.first, in.lossy, over) }() // waited for below
		lost, stop := in.losses(p)
		do(p)
		for n := lost.Load(); n < enough && !t.Failed(); n = lost.Load() {
			testwait.Until(t, "one more is lost",
				func() bool { return lost.Load() > n || t.Failed() })
		}
		stop()
		close(over)
		counted := <-ended
		in.first += 100
		t.Logf("dedicated %v: %v", dedicated, counted.n)
		if counted.n["asked"] < 200 || counted.n["-UPSTREAM unknown"] == 0 {
			t.Errorf("too little happened: %v", counted.n)
		}
		p.Server.Close()
	}
}

func anyOf(servers []*testredis.Server) func() *testredis.Server {
	return func() *testredis.Server { return servers[rand.IntN(len(servers))] }
}

// Clients get their own replies, in order, while connections to all nodes are lost and slots move.
func TestIsolationInACluster(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartLinkedCluster(t, 0, 3, 0)
	in := &isolation{url: cluster.URL(), any: anyOf(cluster.Nodes),
		ways: []func(*testredis.Server){breakLink, killClients}}
	in.during(t, isolationLosses, func(*proxytest.Proxy) {})
	in.ways = []func(*testredis.Server){breakLink} // not those that move slots
	in.during(t, 5, func(*proxytest.Proxy) {
		for range isolationLosses / 3 {
			slot := cluster.Slot(fmt.Sprintf("{%d.%d.%d}", in.first+rand.IntN(20), rand.IntN(4),
				rand.IntN(8)))
			from := cluster.MasterOf(slot)
			cluster.MigrateSlots(from, proxytest.AnotherMaster(cluster, from), slot)
		}
	})
}
