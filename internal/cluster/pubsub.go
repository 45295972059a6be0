package cluster

// What comes on a connection without having been asked for: messages, RESP3's pushes, MONITOR's feed; and the confirmations of
// subscriptions.

import (
	"errors"
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

var errShard = errors.New("a sharded channel could not be subscribed to again after its slot had moved")

// Channels that aren't sharded are one node's for all: the cluster carries what is published anywhere everywhere, but only where
// all publish and subscribe at one node do subscribers get messages in one order, and publishers the right number of them.

// subscribe is SUBSCRIBE, PSUBSCRIBE and their opposites.
func subscribe(c *Conn, q *query) {
	n := c.channelNode()
	if s := c.channels; s != nil && !s.ended && s.state.Channels+s.state.Patterns > 0 {
		n = s
	}
	c.channels = n
	if !strings.Contains(q.cmd.Name, "unsub") {
		c.subscribes(n)
	}
	c.askAt(q, n).one.confirms = confirmsOf(q)
}

// publish is PUBLISH.
func publish(c *Conn, q *query) { c.askAt(q, c.channelNode()) }

// channelNode is the node of the channels: the master with the lowest slot. mu is held.
func (c *Conn) channelNode() *node {
	if c.slots == nil {
		return c.homeNode()
	}
	return c.nodeAt(c.slots.masters[0])
}

// askAt sends a request of the client's to a certain node. mu is held.
func (c *Conn) askAt(q *query, n *node) *request {
	r := newRequest(q.raw, -1)
	c.kept += len(q.raw)
	c.enqueue(r)
	n.push(&r.one)
	return r
}

// subscribes takes note that n is about to have subscriptions. mu is held.
func (c *Conn) subscribes(n *node) {
	if !n.state.subscribed() {
		n.state.pending = true
	}
	c.subscriber = n
}

// subscribedAt is a node with subscriptions in protocol 2, which then answers little else and must say so; nil if there is none. mu
// is held.
func (c *Conn) subscribedAt() *node {
	if c.subscriber == nil || c.setup.proto != 2 {
		return nil
	}
	if s := c.subscriber; !s.ended && s.state.subscribed() {
		return s
	}
	for _, n := range c.nodes {
		if n.state.subscribed() {
			c.subscriber = n
			return n
		}
	}
	c.subscriber = nil
	return nil
}

// subscribed reports whether there are subscriptions, or will be.
func (s *nodeState) subscribed() bool { return s.pending || s.All() > 0 }

// confirmsOf is how many confirmations a request gets; -1 is as many as there are subscriptions, one at least.
func confirmsOf(q *query) int {
	if len(q.args) > 1 {
		return len(q.args) - 1
	}
	return -1
}

// subscribeSharded is SSUBSCRIBE, which goes to who serves the channels' slot.
func subscribeSharded(c *Conn, q *query) {
	slot, _ := c.slotOf(q)
	if slot == manySlots {
		c.local(crossSlot)
		return
	}
	if slot >= 0 && q.cmd.Name == "ssubscribe" {
		c.subscribes(c.slotNode(slot))
	}
	r := c.ask(q, slot)
	r.one.confirms = confirmsOf(q)
}

// unsubscribeSharded is SUNSUBSCRIBE. Without channels it goes to all nodes that have some.
func unsubscribeSharded(c *Conn, q *query) {
	if len(q.args) > 1 {
		subscribeSharded(c, q)
		return
	}
	asked := false
	for _, n := range c.nodes {
		if n.state.Sharded > 0 {
			r := newRequest(q.raw, -1)
			r.one.confirms = -1
			c.kept += len(q.raw)
			c.enqueue(r)
			n.push(&r.one)
			asked = true
		}
	}
	if !asked {
		subscribe(c, q)
	}
}

// monitor is MONITOR, of all masters.
func monitor(c *Conn, q *query) {
	before := c.last
	toMasters(c, q)
	if r := c.last; r != before {
		r.each = func(n *node, _ *part, h resp.Head) { n.state.monitor = n.state.monitor || h.IsOK() }
	}
}

// confirmationOf is what a reply confirms.
func confirmationOf(h resp.Head) commands.Effect {
	if h.Type != '*' && h.Type != '>' {
		return commands.NoEffect
	}
	return commands.Confirmation(h.Elem)
}

// unasked reports whether a reply answers nothing.
func (n *node) unasked(h resp.Head) bool {
	p := n.waiting.head()
	confirms := confirmationOf(h) != commands.NoEffect && p != nil && p.confirms != 0
	switch h.Type {
	case '>':
		return !confirms
	case '*':
		subscriptions := n.state.All()
		return n.c.setup.proto == 2 && subscriptions > 0 && !confirms && (commands.IsMessage(h.Elem) || confirmationOf(h) == commands.SUnsubscribe && p == nil)
	case '+':
		return n.state.monitor && commands.IsMonitorLine(h.Line)
	}
	return false
}

// confirmed takes one of the replies to a request for subscriptions. It returns false for the last, and for an error.
func (n *node) confirmed(p *part, h resp.Head, reply *pieces) (more bool) {
	kind := confirmationOf(h)
	n.state.pending = false
	if kind == commands.NoEffect {
		return false // another node may have to confirm it
	}
	if p.confirms < 0 {
		p.confirms = n.state.Confirmations(kind, 0)
	}
	n.state.Confirmed(kind, h.Last)
	if kind == commands.SSubscribe || kind == commands.SUnsubscribe {
		n.c.shardConfirmed(n, kind, reply)
	}
	if p.confirms--; p.confirms == 0 {
		return false
	}
	p.passed = true
	if !p.req.hidden {
		n.c.give(p.req, *reply)
	}
	return true
}

// shardConfirmed counts the sharded channels of all nodes together, and says so in the confirmation. c.mu is held.
func (c *Conn) shardConfirmed(n *node, kind commands.Effect, reply *pieces) {
	raw := reply.bytes()
	aggregate, elems, err := shardElements(raw)
	if err != nil || len(elems) != 3 {
		return
	}
	channel := string(elems[1])
	if c.shards == nil {
		c.shards = map[string]*node{}
	}
	if kind == commands.SSubscribe {
		c.shards[channel] = n
	} else if c.shards[channel] == n {
		delete(c.shards, channel)
	}
	elems[2] = appendLength(nil, ':', len(c.shards))
	text := resp.AppendAggregate(nil, aggregate, elems)
	*reply = pieces{first: text, size: len(text)}
}

// shardElements is resp.Elements for pushes too.
func shardElements(raw []byte) (kind byte, elems [][]byte, err error) {
	plain := append([]byte{'*'}, raw[1:]...)
	_, elems, err = resp.Elements(plain)
	return raw[0], elems, err
}

// unasked gives the client what a node has sent without being asked, behind what that node has answered before. c.mu is held.
func (c *Conn) unasked(n *node, h resp.Head, reply pieces) {
	if confirmationOf(h) == commands.SUnsubscribe {
		c.shardMoved(n, reply.bytes())
		return
	}
	if p := n.waiting.head(); p != nil && p.confirms > 0 && p.passed {
		c.give(p.req, reply)
		return
	}
	r := &request{done: true, out: reply}
	c.buffered += reply.size
	switch last := n.answered; {
	case last != nil && !last.read:
		r.next, last.next = last.next, r
		if c.last == last {
			c.last = r
		}
	case c.head != nil && c.head.began:
		r.next, c.head.next = c.head.next, r
		if c.last == c.head {
			c.last = r
		}
	default:
		r.next, c.head = c.head, r
		if c.last == nil {
			c.last = r
		}
	}
	n.answered = r
	c.readable.Signal()
}

// shardMoved subscribes again to a sharded channel that a node has dropped, because its slot has another master now. The client
// doesn't hear of it. c.mu is held.
func (c *Conn) shardMoved(n *node, raw []byte) {
	_, elems, err := shardElements(raw)
	if err != nil || len(elems) != 3 {
		return
	}
	n.state.Sharded = max(0, n.state.Sharded-1)
	v, err := resp.ParseValue(elems[1])
	if err != nil || c.shards[string(elems[1])] != n {
		return
	}
	delete(c.shards, string(elems[1]))
	command := resp.AppendCommand(nil, []byte("SSUBSCRIBE"), v.Text)
	r := c.ownRequest(command, func(reply []byte) {
		if isError(reply) {
			c.endLocked(&NodeError{Addr: n.addr, Err: errShard})
		}
	})
	r.follows = true
	r.one.slot, r.one.confirms = Slot(v.Text), 1
	c.cluster.look(c)
	c.later(&r.one)
}
