package cluster

import (
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"lockproxy/internal/resp"
)

// nodeSet is a Conn's connections to nodes, and the map by which requests go to them. Conn.mu
// guards it.
type nodeSet struct {
	c      *Conn
	slots  *slotMap                   // nil if not known
	others map[string]map[string]bool // by the asked node; the masters that it knows, see learnFrom
	byAddr map[string]*node           // those that have not ended
	dflt   *node                      // the default node; nil until one is needed
	failed error                      // why the last connection could not be opened
	// identified says that the numbers of all connections are to be learned.
	identified bool
	closing    time.Duration // how long a node that is no master any more can take to say so
}

// at is the connection to the node at addr.
func (s *nodeSet) at(addr string) *node {
	if n := s.byAddr[addr]; n != nil {
		return n
	}
	return s.open(addr, nil)
}

// open begins to open a connection to addr, or uses nc, which is open. c.mu is held.
func (s *nodeSet) open(addr string, nc net.Conn) *node {
	n := &node{c: s.c, addr: addr, sending: true, master: !s.isReplica(addr)}
	n.Conn, s.byAddr[addr] = nc, n
	if s.identified {
		n.learnID()
	}
	as := s.c.settings
	s.c.goroutines.Go(func() { n.start(as) }) // ends with the connection; Close waits for it
	return n
}

// isReplica reports whether the map has a replica at addr.
func (s *nodeSet) isReplica(addr string) bool {
	return s.slots != nil && slices.Contains(s.slots.replicas, addr)
}

// busy reports whether the default node, or one that the client has used, has something to answer.
func (s *nodeSet) busy() bool {
	for _, n := range s.byAddr {
		if (n.used || n == s.dflt) && n.waiting.Len() > 0 {
			return true
		}
	}
	return false
}

// openMasters opens a connection to each master that has none, so that no request has to wait until
// there is one, and none of another client overtakes it meanwhile.
func (s *nodeSet) openMasters() {
	if s.slots != nil && s.c.Early {
		s.atAll(s.slots.masters)
	}
}

// reopen opens a connection again that nothing of the client's was sent by.
func (s *nodeSet) reopen(n *node) {
	n.ended = true
	if n.Conn != nil {
		n.Close()
	}
	s.forget(n)
	for p := n.awaited(); p != nil; p = n.awaited() {
		n.waiting.Pop()
		s.c.answers.partDone(p, nil)
		s.c.order.answered(p.slot)
	}
	s.open(n.addr, nil)
}

// forSlot is the connection to the node that serves a slot. If that is not known any node will
// tell.
func (s *nodeSet) forSlot(slot int) *node {
	if s.slots != nil {
		if addr := s.slots.master(slot); addr != "" {
			return s.at(addr)
		}
	}
	return s.defaultNode()
}

// defaultNode is where requests without keys go: always the same master as long as there is a
// connection to it.
func (s *nodeSet) defaultNode() *node {
	if s.dflt != nil {
		return s.dflt
	}
	addrs := s.c.cluster.seeds
	if s.slots != nil {
		addrs = s.slots.masters
	}
	addr := addrs[rand.IntN(len(addrs))]
	for _, known := range addrs {
		if s.byAddr[known] != nil {
			addr = known
			break
		}
	}
	s.dflt = s.at(addr)
	return s.dflt
}

// leaveDefault makes another master than n the default node, if n is that. It is a replica,
// whatever the map says.
func (s *nodeSet) leaveDefault(n *node) {
	if s.dflt != n {
		return
	}
	s.dflt = nil
	if s.slots == nil {
		return
	}
	for _, i := range rand.Perm(len(s.slots.masters)) {
		if addr := s.slots.masters[i]; addr != n.addr {
			s.dflt = s.at(addr)
			return
		}
	}
}

// channelNode is where channels that aren't sharded are.
func (s *nodeSet) channelNode() *node {
	if s.slots == nil {
		return s.defaultNode()
	}
	if addr := s.c.cluster.channels.Load(); addr != nil {
		return s.at(*addr)
	}
	return s.at(s.lowest())
}

// lowest is the master with the lowest slot, which is the channelNode or about to be; "" if it is
// not known.
func (s *nodeSet) lowest() string {
	if s.slots == nil {
		return ""
	}
	return s.slots.masters[0]
}

// forget is called when a connection has ended.
func (s *nodeSet) forget(n *node) {
	if s.byAddr[n.addr] == n {
		delete(s.byAddr, n.addr)
	}
	if n.Conn != nil {
		s.c.cluster.disconnected(n.member())
	}
	if s.dflt == n {
		s.dflt = nil
	}
}

// applyMap replaces the map. Requests for slots that are another node's now are held until the
// nodes that were asked for them have answered.
func (s *nodeSet) applyMap(m *slotMap) {
	if m == s.slots || m == nil {
		return
	}
	s.slots = m
	for _, n := range s.byAddr {
		n.master = n.master || slices.Contains(m.masters, n.addr)
	}
	s.openMasters()
	if s.dflt != nil && !slices.Contains(m.masters, s.dflt.addr) {
		s.dflt = nil
	}
	s.c.order.holdMoved(m)
	s.c.subs.events.refreshed(true)
}

// closingTimeout is nodeSet.closing, but in tests.
const closingTimeout = time.Second

var (
	errReplaced = errors.New("it is no longer a master, and does not answer")
	pingCommand = resp.AppendCommand(nil, "PING")
)

// mapChanged applies the newest map. A node that is no master any more, and has still to answer,
// is sent a PING, and given up if it does not answer that. A replica has as long as a master for
// what all nodes are asked.
func (c *Conn) mapChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.nodes.applyMap(c.cluster.slots.Load())
	c.subs.events.refreshed(false)
	for _, n := range c.nodes.byAddr {
		idle, replica := n.waiting.Len() == 0, c.nodes.isReplica(n.addr)
		if replica && idle && n.state == (nodeState{}) {
			n.master = false
		}
		if slices.Contains(c.nodes.slots.masters, n.addr) || n.closing || n.Conn == nil ||
			replica && !n.master || idle && n.state == (nodeState{}) {
			continue
		}
		// Within a transaction PING would be queued too, and answered by EXEC.
		inTransaction := c.tx.open != nil && c.tx.open.node == n
		if inTransaction && idle {
			continue
		}
		n.closing = true
		if !inTransaction {
			n.sendOwn(pingCommand)
		}
		asked := *n.waiting.Last()
		c.after(c.nodes.closing, func() {
			n.closing = false
			if asked.node == n && !n.ended {
				n.end(errReplaced)
			}
		})
	}
}

// askAll sends a request of the client's to several nodes. finish makes one reply out of theirs.
func (c *Conn) askAll(nodes []*node, raw []byte, finish func([][]byte) []byte) *request {
	return c.askEach(nodes, slices.Repeat([][]byte{raw}, len(nodes)), finish)
}

// askEach is askAll with a request for each node.
func (c *Conn) askEach(nodes []*node, raws [][]byte, finish func([][]byte) []byte) *request {
	r := c.addSplit(raws, finish)
	for i, n := range nodes {
		n.push(r.parts[i])
	}
	return r
}

// addSplit makes a request of the client's whose parts are still to be sent.
func (c *Conn) addSplit(raws [][]byte, finish func([][]byte) []byte) *request {
	r := &request{unanswered: len(raws)}
	r.finish = finish
	for _, raw := range raws {
		r.parts = append(r.parts, &part{req: r, raw: raw, slot: -1})
		c.owed(len(raw))
	}
	c.add(r)
	return r
}

// atAll is the connections to the nodes at addrs.
func (s *nodeSet) atAll(addrs []string) (nodes []*node) {
	for _, addr := range addrs {
		nodes = append(nodes, s.at(addr))
	}
	return nodes
}
