package cluster

// Where requests go: the ways that the table of commands names.

import (
	"errors"
	"math/rand/v2"
	"strconv"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

// crossSlot is what Redis says to keys of several slots.
var crossSlot = []byte("-CROSSSLOT Keys in request don't hash to the same slot\r\n")

var okReply = []byte("+OK\r\n")

var errTooLong = errors.New("a request that must be seen whole to be sent to the right nodes is longer than " + strconv.Itoa(maxJoined>>20) + " MiB")

// byKeys sends a request to the node that serves its keys, or its parts to several.
func byKeys(c *Conn, q *query) {
	slot, at := c.slotOf(q)
	switch {
	case slot != manySlots:
		c.ask(q, slot)
	case q.cmd.split != nil:
		q.cmd.split(c, q, at)
	default:
		c.local(crossSlot)
	}
}

// manySlots is the slot of keys of several.
const manySlots = -2

// slotOf is the slot of a request's keys, -1 if it has none, or manySlots. at is where the keys are.
func (c *Conn) slotOf(q *query) (slot int, at []int) {
	at = q.cmd.Keys.Positions(q.args, c.at[:0])
	c.at = at
	slot = -1
	for i, j := range at {
		s := Slot(q.args[j])
		if i > 0 && s != slot {
			return manySlots, at
		}
		slot = s
	}
	return slot, at
}

// toHome sends it to any master, always the same as long as there is a connection to it.
func toHome(c *Conn, q *query) { c.ask(q, -1) }

// answerOK is for what is of no matter here: what a cluster-aware client tells a node of the cluster.
func answerOK(c *Conn, q *query) { c.answer(okReply) }

// answer gives the client text if a node lets it in.
func (c *Conn) answer(text []byte) {
	r := newRequest(pingCommand, -1)
	r.finish = func(replies [][]byte) []byte {
		if isError(replies[0]) {
			return replies[0]
		}
		return text
	}
	c.kept += len(pingCommand)
	c.enqueue(r)
	c.dispatch(&r.one)
}

// bySlot sends CLUSTER COUNTKEYSINSLOT and GETKEYSINSLOT to who serves the slot.
func bySlot(c *Conn, q *query) {
	slot := int64(-1)
	if len(q.args) > 2 {
		if n, ok := resp.ParseInt(q.args[2]); ok && n >= 0 && n < Slots {
			slot = n
		}
	}
	c.ask(q, int(slot))
}

// quit ends the Conn behind all that was asked before.
func quit(c *Conn, q *query) {
	r := &request{}
	c.enqueue(r)
	r.done = true
	c.give(r, pieces{first: okReply, size: len(okReply)})
	c.half = true
	for _, n := range c.nodes {
		n.wake()
	}
}

// toMasters sends it to all masters, or all nodes, and joins their answers.
func toMasters(c *Conn, q *query) {
	if c.slots == nil || !c.slots.whole() && q.cmd.Nodes != commands.AnyMaster {
		c.askUnknown(q)
		return
	}
	addrs := c.slots.masters
	if q.cmd.Nodes == commands.All {
		addrs = c.slots.nodes()
	}
	r := c.splitRequest(len(addrs), joinReplies(q.cmd.join, q.cmd.Nodes == commands.AnyMaster))
	for i, addr := range addrs {
		p := r.parts[i]
		p.raw, p.slot = q.raw, -1
		c.kept += len(q.raw)
		c.nodeAt(addr).push(p)
	}
}

// askUnknown is for requests to all nodes while it isn't known who they are. A node says so itself if it is because the client isn't let
// in, or because slots have no master.
func (c *Conn) askUnknown(q *query) {
	c.cluster.look(c)
	r := newRequest(rolesCommand, -1)
	r.finish = func(replies [][]byte) []byte {
		if isError(replies[0]) {
			return replies[0]
		}
		if c.slots != nil {
			return []byte("-CLUSTERDOWN Hash slot not served\r\n")
		}
		return c.Failure(c.cluster.String(), false, errors.New("it isn't known yet who the nodes are"))
	}
	c.kept += len(rolesCommand)
	c.enqueue(r)
	c.dispatch(&r.one)
}

// rolesCommand is answered with an error by those who don't let the client in.
var rolesCommand = resp.AppendCommand(nil, "CLUSTER", "SLOTS")

// splitRequest is a request of n parts, which has its place in the queue. finish is called with their replies.
func (c *Conn) splitRequest(n int, finish func([][]byte) []byte) *request {
	r := &request{left: n, parts: make([]*part, n), finish: finish}
	all := make([]part, n)
	for i := range all {
		all[i] = part{req: r, slot: -1}
		r.parts[i] = &all[i]
	}
	c.enqueue(r)
	return r
}

// joinReplies makes one reply. An error of one node is the answer, unless any says that it is enough that one has done it.
func joinReplies(join joiner, any bool) func(replies [][]byte) []byte {
	return func(replies [][]byte) []byte {
		var good [][]byte
		for _, raw := range replies {
			if !isError(raw) {
				good = append(good, raw)
			}
		}
		if len(good) == 0 || len(good) < len(replies) && !any {
			return worst(replies)
		}
		return join(good)
	}
}

// worst is which of the replies, some of which are errors, is given to the client: one of unknown outcome before all others. What
// a node has done can't be undone because another couldn't be reached: so that, too, is unknown.
func worst(replies [][]byte) []byte {
	var found []byte
	some := false // a node has done its part
	for _, raw := range replies {
		switch {
		case !isError(raw):
			some = true
		case found == nil || unknownOutcome(raw):
			found = raw
		}
	}
	if some && isFailure(found) && !unknownOutcome(found) {
		return resp.AppendError(nil, "UPSTREAM a part of the request was run by its node, but another node could not be reached: the outcome is unknown in part ("+
			string(errorLine(found)[len(failurePrefix)-1:])+")")
	}
	return found
}

// randomKey asks the masters in turn, from any of them, until one has a key.
func randomKey(c *Conn, q *query) {
	if c.slots == nil {
		c.askUnknown(q)
		return
	}
	from := rand.IntN(len(c.slots.masters))
	r := c.splitRequest(len(c.slots.masters), func(replies [][]byte) []byte {
		for i := range replies {
			raw := replies[(i+from)%len(replies)]
			if v, err := resp.ParseValue(raw); err != nil || !v.IsNull() {
				return raw
			}
		}
		return replies[0]
	})
	for i, addr := range c.slots.masters {
		p := r.parts[i]
		p.raw = q.raw
		c.kept += len(q.raw)
		c.nodeAt(addr).push(p)
	}
}

// scan sends SCAN to the master whose turn it is by the cursor.
func scan(c *Conn, q *query) {
	if len(q.args) < 2 {
		toHome(c, q)
		return
	}
	place, ok := decodeScan(q.args[1])
	if !ok {
		toHome(c, q) // it says what is wrong with it
		return
	}
	if c.slots == nil {
		c.askUnknown(q)
		return
	}
	m := c.slots
	master, cursor, ok := place.current(m)
	if !ok {
		c.answer([]byte("*2\r\n$1\r\n0\r\n*0\r\n"))
		return
	}
	args := append([][]byte(nil), q.args...)
	args[1] = strconv.AppendUint(nil, cursor, 10)
	raw := resp.AppendCommand(nil, args...)
	r := newRequest(raw, -1)
	r.finish = func(replies [][]byte) []byte { return scanned(m, master, replies[0]) }
	c.kept += len(raw)
	c.enqueue(r)
	c.nodeAt(m.masters[master]).push(&r.one)
}
