package testredis

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Slots is how many slots a Redis Cluster has.
const Slots = 16384

// How long a cluster's nodes take a silent one for slow, not for down, in milliseconds. Were it
// always short, a busy machine would have masters replaced that tests rely on.
const (
	clusterPatience   = 600_000
	clusterImpatience = 1500

	nodeTimeout = "--cluster-node-timeout"
	clusterNode = "--cluster-enabled"
	tlsCluster  = "--tls-cluster"
)

// Cluster is a Redis Cluster. The first Masters of its nodes are masters at the start, with the
// slots in equal parts, in order; then come their replicas, in turn.
type Cluster struct {
	Nodes   []*Server
	Masters int

	t       testing.TB
	args    []string
	timeout string         // the node timeout that the test has asked for, if it has
	tls     bool           // its nodes serve TLS too, and proxies use that
	far     *time.Duration // the round trip of each node's link; nil without links
}

// StartTLSCluster starts a cluster of masters whose nodes serve TLS too, and tell clients who use
// it of those ports alone. args must have the certificates. The addresses for clients are returned.
func StartTLSCluster(t testing.TB, masters int, args ...string) (c *Cluster, addrs []string) {
	t.Helper()
	c = StartClusterBy(t, TCP, masters, 0, append([]string{tlsCluster, "yes"}, args...)...)
	for _, s := range c.Nodes {
		addrs = append(addrs, "127.0.0.1:"+s.busPort())
	}
	return c, addrs
}

// busPort is the port that other nodes know a node by.
func (s *Server) busPort() string {
	if port, ok := s.tlsPort(); ok {
		return port
	}
	return strconv.Itoa(s.port)
}

// StartCluster starts a cluster of masters and, for each of them, replicas, and returns when each
// node takes it for whole. The arguments are for each node, as for Start.
func StartCluster(t testing.TB, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	return StartClusterBy(t, ChooseTransport(t, Upstreams, TLS), masters, replicas, args...)
}

// StartClusterBy is StartCluster for a test that is about a transport: with TLS the nodes serve that,
// too, and proxies use it.
func StartClusterBy(t testing.TB, by Transport, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	return startCluster(t, &Cluster{tls: by == TLS}, masters, replicas, args...)
}

// StartLinkedCluster is StartCluster with a link to each node, by which clients and replicas reach
// it, and which is a round trip long. The nodes tell each other who serves what without links.
func StartLinkedCluster(t testing.TB, roundTrip time.Duration, masters, replicas int,
	args ...string) *Cluster {
	t.Helper()
	return startCluster(t, &Cluster{far: &roundTrip}, masters, replicas, args...)
}

func startCluster(t testing.TB, c *Cluster, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	if i := slices.Index(args, "--requirepass"); i >= 0 {
		args = append(slices.Clone(args), "--masterauth", args[i+1])
	}
	c.t, c.Masters, c.args = t, masters, args
	if i := slices.Index(args, nodeTimeout); i >= 0 {
		c.timeout, c.args = args[i+1], slices.Delete(slices.Clone(args), i, i+2)
	}
	c.Nodes = make([]*Server, masters*(1+replicas))
	for i := range c.Nodes {
		c.Nodes[i] = c.newNode()
	}
	p := c.plan()
	for i := range c.Nodes {
		p.start(c, i)
	}
	p.forgetPhantoms(c)
	for i, node := range c.Nodes[masters:] {
		node.WaitInSync()
		c.tellOffset(c.Nodes[i%masters], node)
	}
	c.WaitOK()
	c.setNodeTimeout(c.Nodes...)
	return c
}

// setNodeTimeout gives nodes the node timeout that the test has asked for, if it has. They start with
// a long one: a phantom, and a node that has not been started yet, are not to count as down.
func (c *Cluster) setNodeTimeout(nodes ...*Server) {
	c.t.Helper()
	if c.timeout == "" {
		return
	}
	for _, s := range nodes {
		s.args[slices.Index(s.args, nodeTimeout)+1] = c.timeout // for its next start
		c.must(s, "CONFIG", "SET", nodeTimeout[2:], c.timeout)
	}
}

// newNode makes a node that isn't started yet.
func (c *Cluster) newNode() *Server {
	s := &Server{t: c.t, port: FreePort(c.t, busOffset), dir: serverDir(c.t)}
	s.args = append([]string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--dir",
		s.dir, "--save", "",
		clusterNode, "yes", nodeTimeout,
		strconv.Itoa(clusterPatience),
		"--cluster-replica-validity-factor", "0", "--repl-diskless-sync", "no",
		"--repl-ping-replica-period", "1"}, c.args...)
	if canFixRoles() {
		s.args = append(s.args, "--cluster-allow-replica-migration", "no")
	}
	switch {
	case c.tls:
		s.serveTLS(busOffset)
		s.args = append(append(s.args, tlsCluster, "yes"), betweenServers...)
	case slices.Contains(c.args, tlsCluster):
		s.args = append(s.args, "--tls-port", strconv.Itoa(FreePort(c.t, busOffset)))
	}
	c.t.Cleanup(func() {
		s.Kill()
		if c.t.Failed() {
			c.t.Logf("redis-server on port %d said:\n%s", s.port, s.log.String())
		}
	})
	if c.far != nil {
		s.linkBy(*c.far, "--cluster-announce-port")
		s.args = append(s.args, "--cluster-announce-bus-port", strconv.Itoa(s.port+busOffset))
	}
	return s
}

// busOffset is how far above a cluster node's port the one lies on which it talks to the other
// nodes.
const busOffset = 10000

// canFixRoles reports whether the installed server can be told that a replica doesn't go to another
// master, nor a master that has lost its last slot becomes a replica.
func canFixRoles() bool { return Since(7, 0) }

// meet introduces a node to others.
func (c *Cluster) meet(node *Server, others []*Server) {
	c.t.Helper()
	for _, s := range others {
		if s != node {
			c.must(node, "CLUSTER", "MEET", "127.0.0.1", s.busPort())
		}
	}
}

// AddNode starts another node, without slots, and returns when all others know it and it knows all
// slots.
func (c *Cluster) AddNode() *Server {
	c.t.Helper()
	node := c.newNode()
	node.start()
	c.meet(node, c.alive())
	c.Nodes = append(c.Nodes, node)
	id := c.ID(node)
	c.talkUntil("the new node is known", func() bool {
		for _, s := range c.alive() {
			if !strings.Contains(s.Ask("CLUSTER", "NODES"), id) ||
				c.clusterInfo(s, "cluster_state") != "ok" {
				return false
			}
		}
		return true
	})
	c.setNodeTimeout(node)
	return node
}

// RemoveNode has all nodes forget one that has no slots (any more), and ends it.
func (c *Cluster) RemoveNode(node *Server) {
	c.t.Helper()
	id := c.ID(node)
	node.Kill()
	c.Nodes = slices.DeleteFunc(c.Nodes, func(s *Server) bool { return s == node })
	for _, s := range c.alive() {
		c.must(s, "CLUSTER", "FORGET", id)
	}
}

// ID is a node's name in the cluster.
func (c *Cluster) ID(node *Server) string {
	c.t.Helper()
	id := node.Ask("CLUSTER", "MYID")
	if len(id) != 40 {
		c.t.Fatalf("CLUSTER MYID: %q", id)
	}
	return id
}

// URL is how lockproxy finds the cluster.
func (c *Cluster) URL() string { return "redis+cluster://" + strings.Join(c.Addrs(), ",") }

// Addrs is host:port of each node, by its link if it has one.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		addrs[i] = s.Told()
	}
	return addrs
}

// MasterOf is the node that serves a slot, by its own word, as soon as there is one that can say
// so.
func (c *Cluster) MasterOf(slot int) (master *Server) {
	c.t.Helper()
	c.waitFor("a node serves slot "+strconv.Itoa(slot), func() bool {
		for _, s := range c.alive() {
			if s.Role() == "master" && slices.Contains(c.SlotsOf(s), slot) {
				master = s
				return true
			}
		}
		return false
	})
	return master
}

// SlotsOf is the slots that a node takes for its own, in order.
func (c *Cluster) SlotsOf(node *Server) (slots []int) {
	for line := range strings.SplitSeq(node.Ask("CLUSTER", "NODES"), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 8 || !strings.Contains(fields[2], "myself") {
			continue
		}
		for _, part := range fields[8:] {
			from, to, isRange := strings.Cut(part, "-")
			if !isRange {
				to = from
			}
			lo, err := strconv.Atoi(from)
			hi, err2 := strconv.Atoi(to)
			if err != nil || err2 != nil {
				continue // on its way: [slot->-node]
			}
			for slot := lo; slot <= hi; slot++ {
				slots = append(slots, slot)
			}
		}
	}
	return slots
}

// ReplicaOf is a running replica of a master, or nil.
func (c *Cluster) ReplicaOf(master *Server) *Server {
	id := c.ID(master)
	for _, s := range c.alive() {
		for line := range strings.SplitSeq(s.Ask("CLUSTER", "NODES"), "\n") {
			if fields := strings.Fields(line); len(fields) >= 4 &&
				strings.Contains(fields[2], "myself") && fields[3] == id {
				return s
			}
		}
	}
	return nil
}

// Slot is the slot of a key, by the cluster's own word.
func (c *Cluster) Slot(key string) (slot int) {
	c.t.Helper()
	c.waitFor("a node tells the slot of "+strconv.Quote(key), func() bool {
		got, ok := strings.CutPrefix(c.alive()[0].Ask("CLUSTER", "KEYSLOT", key), ":")
		var err error
		slot, err = strconv.Atoi(got)
		return ok && err == nil
	})
	return slot
}

// alive are the nodes whose processes have not ended.
func (c *Cluster) alive() (nodes []*Server) {
	for _, s := range c.Nodes {
		if s.cmd != nil {
			nodes = append(nodes, s)
		}
	}
	return nodes
}
