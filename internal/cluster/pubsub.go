package cluster

// Subscriptions, and replies without a request: messages, RESP3's pushes, MONITOR's feed.

import (
	"bytes"
	"errors"
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

var errShard = errors.New("the subscriptions to sharded channels are unknown after a slot has " +
	"moved")

// subscriptions is the subscriptions at all nodes. Conn.mu is held in all methods.
//
// All Conns subscribe and publish at one node, except to sharded channels. The nodes would tell
// each other all that is published. But only at one node do subscribers get messages in one order,
// and publishers the right number of subscribers. When another becomes that node, subscriptions are
// copied there, and then publishers go there.
type subscriptions struct {
	c        *Conn
	channels *node // that of SUBSCRIBE and PSUBSCRIBE
	last     *node // the last that was sent a subscription
	awaited  int   // requests that change them and have no answer
	// shards is the nodes of sharded channels. The keys are encoded as bulk strings. nil is a node
	// that is being found because the slot has moved.
	shards map[string]*node
	lost   []string // those of which that has to be found yet
	// restoring is how many SSUBSCRIBEs of the Conn's own have no answer. No SUNSUBSCRIBE and no
	// RESET may overtake one: a node would have the subscription for good.
	restoring int
	events    events
	// confirming is the requests for sharded channels, in order, from the first without an answer
	// on. told is the channels that the client has been told of: they give the numbers.
	confirming []*request
	told       map[string]bool
}

// subscribe is SUBSCRIBE, PSUBSCRIBE and their opposites.
func subscribe(c *Conn, q *query) {
	n := c.nodes.channelNode()
	old := c.subs.channels
	if old != nil && !old.ended && (c.subs.awaited > 0 || old.state.Channels+old.state.Patterns > 0) {
		n = old
	}
	c.subs.channels = n
	if !strings.Contains(q.cmd.Name, "unsub") {
		c.subs.expect(n)
	}
	c.subs.awaits(c.subs.events.subscribe(q, n), q)
}

// toChannels is PUBLISH and what is about the channels of all Conns.
func toChannels(c *Conn, q *query) { c.send(newRequest(q.raw, -1), c.nodes.channelNode()) }

// expect records that n is about to have subscriptions.
func (s *subscriptions) expect(n *node) {
	if !n.state.subscribed() {
		n.state.pending = true
	}
	s.last = n
}

// subscribedNode is a node with subscriptions in protocol 2: it refuses most commands, in its own
// words. nil is none.
func (s *subscriptions) subscribedNode() *node {
	if s.last == nil || s.c.settings.proto != 2 {
		return nil
	}
	if !s.last.ended && s.last.state.subscribed() {
		return s.last
	}
	s.last = nil
	for _, n := range s.c.nodes.byAddr {
		if n.state.subscribed() {
			s.last = n
		}
	}
	return s.last
}

// awaits records that r was sent for q, which subscribes or unsubscribes.
func (s *subscriptions) awaits(r *request, q *query) {
	r.one.confirms, r.subscribes = confirmsOf(q), true
	r.sharded = q.cmd.Effect == commands.SSubscribe || q.cmd.Effect == commands.SUnsubscribe
	r.unshards = q.cmd.Effect == commands.SUnsubscribe
	if s.awaited++; r.sharded {
		s.confirming = append(s.confirming, r)
	}
}

// unsettled reports whether missing answers decide if the client is in protocol 2's subscribe mode.
func (s *subscriptions) unsettled() bool {
	return s.awaited > 0 && s.c.settings.proto == 2
}

// begins reports whether a subscription would begin protocol 2's subscribe mode.
func (s *subscriptions) begins() bool {
	return s.c.settings.proto == 2 && s.subscribedNode() == nil
}

// refusedBy is a request that n refuses because the client is in protocol 2's subscribe mode. Nodes
// look first whether they serve its keys.
func refusedBy(q *query, n *node) *request {
	r := newRequest(q.raw, -1)
	name := q.cmd.Name
	r.intercept = func(_ *node, p *part, line []byte) bool {
		redirected := isRedirect(line) || bytes.HasPrefix(line, []byte("CROSSSLOT "))
		if redirected {
			n.c.answers.partDone(p, resp.AppendError(nil, "ERR Can't execute '"+name+
				"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in "+
				"this context"))
		}
		return redirected
	}
	return r
}

// whileSubscribed reports whether a command needs no special route in protocol 2's subscribe mode.
func whileSubscribed(cmd *command) bool {
	return cmd.Effect.Subscribes() || cmd.Effect == commands.Quit || cmd.Effect == commands.Reset
}

// confirmsOf is how many confirmations a request gets; -1 is one for each subscription, at least
// one.
func confirmsOf(q *query) int {
	if len(q.args) > 1 {
		return len(q.args) - 1
	}
	return -1
}

// monitor is MONITOR, of all masters.
func monitor(c *Conn, q *query) {
	toMasters(c, q)
	c.replies.last.onAnswer = func(n *node, h resp.Head) {
		n.state.monitor = n.state.monitor || h.IsOK()
	}
}

// confirmationOf is what a reply confirms.
func confirmationOf(h resp.Head) commands.Effect {
	if h.Type != '*' && h.Type != '>' {
		return commands.NoEffect
	}
	return commands.Confirmation(h.Elem)
}

// isUnasked reports whether a reply of n's answers no request. A node drops sharded channels when
// their slot has moved.
func (n *node) isUnasked(h resp.Head, reply []byte) bool {
	p, kind := n.awaited(), confirmationOf(h)
	confirms := kind != commands.NoEffect && p != nil && p.confirms != 0 &&
		(kind != commands.SUnsubscribe || p.req.unshards && p.names(reply))
	switch h.Type {
	case '>':
		return !confirms
	case '*':
		return n.c.settings.proto == 2 && n.state.All()+n.copies.All() > 0 && !confirms &&
			(commands.IsMessage(h.Elem) || kind == commands.SUnsubscribe)
	case '+':
		return n.state.monitor && commands.IsMonitorLine(h.Line)
	}
	return false
}

// names reports whether p can name the channel of a confirmation.
func (p *part) names(confirmation []byte) bool {
	v, _ := resp.ParseValue(confirmation)
	return p.raw == nil || len(v.Elems) < 2 || bytes.Contains(p.raw, v.Elems[1].Text)
}

// confirmed handles a reply of n to p, which is about subscriptions. more says that p has further
// replies.
func (s *subscriptions) confirmed(n *node, p *part, h resp.Head, reply []byte) (more bool) {
	kind, of := confirmationOf(h), &n.state.Subscriptions
	if p.req.copies {
		of = &n.copies.Subscriptions
	} else {
		n.state.pending = false
	}
	if kind == commands.NoEffect {
		return false // an error; another node may have to confirm it
	}
	if p.confirms < 0 {
		p.confirms = of.Confirmations(kind, 0)
	}
	of.Confirmed(kind, h.Last)
	if kind == commands.SSubscribe || kind == commands.SUnsubscribe {
		s.shardConfirmed(n, kind, reply)
	}
	if p.confirms--; p.confirms == 0 {
		return false
	}
	if p.req.copies {
		return true
	}
	p.streamed = true
	if !p.req.internal {
		s.deliver(p.req, reply)
	}
	return true
}

// unasked gives the client a message that n has sent without a request, behind n's last answer.
func (s *subscriptions) unasked(n *node, h resp.Head, reply []byte) {
	if confirmationOf(h) == commands.SUnsubscribe {
		s.shardMoved(n, reply)
		return
	}
	if isFor, _ := s.events.isForClient(n, h, reply); !isFor {
		return
	}
	if r := n.pushedWithin(); r != nil {
		s.deliver(r, reply)
		return
	}
	push := &request{push: true, done: true, out: reply}
	s.c.replies.insertPush(n.lastAnswered, push)
	n.lastAnswered = push
}

// pushedWithin is the request among whose confirmations n sends a message; nil is none.
func (n *node) pushedWithin() *request {
	if p := n.awaited(); p != nil && p.confirms > 0 && p.streamed {
		return p.req
	}
	return nil
}

// beginPush begins to give the client a large message that n is sending, once it is certain that
// the client is to see it.
func (s *subscriptions) beginPush(n *node, h resp.Head) {
	in := &n.in
	isFor, known := s.events.isForClient(n, h, in.partial)
	switch in.push = n.pushedWithin(); {
	case confirmationOf(h) != commands.NoEffect || !known:
		in.push = nil
		return
	case !isFor:
		in.push, in.discarding, in.notForClient = nil, true, true
	case in.push != nil:
		s.deliver(in.push, in.partial)
	default:
		in.push = &request{push: true, out: in.partial}
		in.push.one = part{req: in.push, node: n}
		s.c.replies.insertPush(n.lastAnswered, in.push)
		n.lastAnswered = in.push
	}
	in.partial = nil
}

// endPush gives the client the end of a large message.
func (s *subscriptions) endPush(n *node, rest []byte) {
	r := n.in.push
	n.in.push = nil
	r.done = r.done || r.push
	s.deliver(r, rest)
}
