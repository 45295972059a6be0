package testredis

// What the nodes of a new cluster know of each other before they start.

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A planned cluster is what its nodes' files say. Redis lets a master wait for two seconds, after
// its start, before it takes a cluster for whole, but not a replica. So each master starts as a
// replica of a phantom of its own, which has its slots, and is told to take the phantom's place.
type planned struct {
	nodes    []*Server
	ids      []string // of nodes
	masters  int
	phantoms []string // the ids of those whose places the masters take
}

func (c *Cluster) plan() *planned {
	p := &planned{nodes: c.Nodes, masters: c.Masters}
	for range c.Nodes {
		p.ids = append(p.ids, newID())
	}
	for range c.Masters {
		p.phantoms = append(p.phantoms, newID())
	}
	return p
}

// newID is a name for a node.
func newID() string {
	var id [20]byte
	rand.Read(id[:])
	return hex.EncodeToString(id[:])
}

// start starts the node with an index. All before it have been started.
func (p *planned) start(c *Cluster, i int) {
	c.t.Helper()
	node := p.nodes[i]
	conf := filepath.Join(node.dir, "nodes.conf")
	if err := os.WriteFile(conf, []byte(p.conf(i)), 0o600); err != nil {
		c.t.Fatal(err)
	}
	node.start()
	c.waitFor("a node takes the cluster for whole", func() bool {
		return c.clusterInfo(node, "cluster_state") == "ok"
	})
	if i < p.masters {
		c.must(node, "CLUSTER", "FAILOVER", "TAKEOVER")
	}
}

// forgetPhantoms returns when the masters know of each other's slots, and no node of a phantom.
func (p *planned) forgetPhantoms(c *Cluster) {
	c.t.Helper()
	for _, node := range p.nodes[:p.masters] {
		c.talkUntil("a master knows the others' slots", func() bool {
			slots := node.Ask("CLUSTER", "SLOTS")
			return !slices.ContainsFunc(p.phantoms, func(id string) bool {
				return strings.Contains(slots, id)
			})
		})
	}
	for _, node := range p.nodes {
		for _, phantom := range p.phantoms {
			// From Redis 7.2 on another node can have told it already.
			if got := node.Ask("CLUSTER", "FORGET", phantom); got != "+OK" &&
				!strings.HasPrefix(got, "-ERR Unknown node") {
				c.t.Fatalf("CLUSTER FORGET at port %d: %s", node.port, got)
			}
		}
	}
}

// tellOffset has a replica tell the others how much it has of its master, which has nothing to give
// it yet. They tell clients of no replica that has nothing.
func (c *Cluster) tellOffset(master, replica *Server) {
	c.t.Helper()
	c.must(master, "FLUSHALL") // replicated though nothing is there
	c.waitFor("a replica has something of its master", func() bool {
		return !strings.Contains(replica.Ask("INFO", "replication"), "slave_repl_offset:0\r\n")
	})
	replica.Ask("PUBLISH", "testredis", "") // sent with its offset
}

// conf is the node's nodes.conf. The masters before it have taken their phantoms' places by the time
// it reads that, each by an epoch that is one greater than the last.
func (p *planned) conf(i int) string {
	var conf strings.Builder
	for j := range p.nodes {
		master, epoch, slots := "-", 0, ""
		switch {
		case j >= p.masters:
			master = p.ids[j%p.masters]
		case j < i:
			epoch, slots = j+1, slotRange(j, j+1, p.masters)
		case j == i:
			master = p.phantoms[i]
		}
		p.line(&conf, i, j, master, epoch, slots)
	}
	// All know all, so that each can be told to forget them, and none hears of them later.
	for j, id := range p.phantoms {
		slots := ""
		if j >= i {
			slots = slotRange(j, j+1, p.masters)
		}
		fmt.Fprintf(&conf, "%s 127.0.0.1:1@1%s master - 0 0 0 connected %s\n", id, p.shard(j), slots)
	}
	fmt.Fprintf(&conf, "vars currentEpoch %d lastVoteEpoch 0\n", min(i, p.masters))
	return conf.String()
}

func (p *planned) line(conf *strings.Builder, i, j int, master string, epoch int, slots string) {
	node := p.nodes[j]
	flags := "master"
	if master != "-" {
		flags = "slave"
	}
	if i == j {
		flags = "myself," + flags
	}
	bus, _ := strconv.Atoi(node.busPort())
	_, port, _ := net.SplitHostPort(node.Told())
	if node.Link == nil {
		port = node.busPort()
	}
	fmt.Fprintf(conf, "%s 127.0.0.1:%s@%d%s %s %s 0 0 %d connected %s\n", p.ids[j], port,
		bus+busOffset, p.shard(j), flags, master, epoch, slots)
}

// shard is what a line says of the shard of the node with an index, its master and replicas, where
// servers write that. Valkey crashes by SPUBLISH where it is missing.
func (p *planned) shard(i int) string {
	if !Since(7, 2) {
		return ""
	}
	return ",,shard-id=" + p.phantoms[i%p.masters]
}

// slotRange is the slots of the masters from one to another, which is not included.
func slotRange(from, to, masters int) string {
	if from >= to {
		return ""
	}
	return fmt.Sprintf("%d-%d", from*Slots/masters, to*Slots/masters-1)
}
