package cluster

// The routes of most commands: by their keys, to the default node, or to all masters.

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
)

var (
	crossSlotReply = []byte("-CROSSSLOT Keys in request don't hash to the same slot\r\n")
	okReply        = []byte("+OK\r\n")
)

// byKeys sends a request to the node that serves its keys, or its parts to several.
func byKeys(c *Conn, q *query) {
	slot, at := c.in.slotOf(q)
	switch {
	case slot != manySlots:
		r := newRequest(q.raw, slot)
		r.script = q.cmd.Class == commands.Slow
		c.send(r, nil)
		if q.blocks() {
			c.replies.blocks()
		}
	case q.cmd.Nodes == commands.Split:
		split(c, q, at)
	default:
		c.replies.answer(crossSlotReply)
	}
}

// toDefault sends a request to the default node.
func toDefault(c *Conn, q *query) { c.send(newRequest(q.raw, -1), nil) }

// debug sends DEBUG. Its DEBUG ERROR answers what the client says, like a script.
func debug(c *Conn, q *query) {
	r := newRequest(q.raw, -1)
	r.script = true
	c.send(r, nil)
}

// refuse answers a command that can't be sent to a cluster.
func refuse(c *Conn, q *query) {
	name := strings.ToUpper(strings.ReplaceAll(q.cmd.Name, "|", " "))
	c.replies.answer(resp.AppendError(nil, "ERR "+name+" can't be sent to a cluster as a whole: "+
		q.cmd.Refused+". Send it to that node directly"))
}

// answerOK is for commands that only a client of single nodes needs.
func answerOK(c *Conn, _ *query) {
	answerIf(c, pingCommand, func() []byte { return okReply })
}

// answerIf answers text unless the default node answers raw with an error.
func answerIf(c *Conn, raw []byte, text func() []byte) {
	r := newRequest(raw, -1)
	r.finish = func(replies [][]byte) []byte {
		if isError(replies[0]) {
			return replies[0]
		}
		return text()
	}
	c.send(r, nil)
}

// bySlot sends CLUSTER COUNTKEYSINSLOT, GETKEYSINSLOT and FLUSHSLOT to the node that serves the
// slot.
func bySlot(c *Conn, q *query) {
	slot := -1
	if len(q.args) > 2 {
		if n, ok := resp.ParseInt(q.args[2]); ok && n >= 0 && n < Slots {
			slot = int(n)
		}
	}
	r := newRequest(q.raw, slot)
	r.keyless = true
	c.send(r, nil)
}

// quit ends the Conn behind all earlier requests.
func quit(c *Conn, _ *query) {
	c.replies.answer(okReply)
	c.endRequests()
}

// closes is POST and HOST:, as a browser sends them. Redis closes the connection, so that no web
// page gives it commands.
func closes(c *Conn, _ *query) { c.endRequests() }

// toMasters sends a request to all masters or all nodes, and joins their replies.
func toMasters(c *Conn, q *query) {
	slots, enoughIfOne := c.nodes.slots, q.cmd.Nodes == commands.AnyMaster
	if slots == nil || !slots.whole() && !enoughIfOne {
		noNodes(c)
		return
	}
	addrs := slots.masters
	if q.cmd.Nodes == commands.All {
		addrs = slots.nodes()
	}
	c.askAll(c.nodes.atAll(addrs), q.raw, joinReplies(q.cmd.join, enoughIfOne))
}

var errWritesLost = errors.New("a connection to a node was lost since this client wrote: the " +
	"outcome of its writes is unknown")

// wait is WAIT and WAITAOF. They count what their own connection has written: after a loss they
// would say of a new one, which has written nothing, that all replicas have it. WAIT 0 0 asks for
// nothing, and its answer may not be read: the next one says it again.
func wait(c *Conn, q *query) {
	if c.answers.writesLost {
		c.answers.writesLost = !slices.ContainsFunc(q.args[1:],
			func(arg []byte) bool { return string(arg) != "0" })
		c.replies.answer(c.Failure(c.cluster.String(), true, errWritesLost))
		return
	}
	toMasters(c, q)
	c.replies.blocks()
}

var errUnknownNodes = errors.New("the nodes are not known yet")

// noNodes answers a request to all nodes while they are not known. If the client is not let in, it
// gets a node's error.
func noNodes(c *Conn) {
	c.refreshMap()
	answerIf(c, slotsCommand, func() []byte {
		if c.nodes.slots != nil {
			return []byte("-CLUSTERDOWN Hash slot not served\r\n")
		}
		return c.Failure(c.cluster.String(), false, errUnknownNodes)
	})
}

// randomKey asks all masters, and answers the key of one of those that have one.
func randomKey(c *Conn, q *query) {
	if c.nodes.slots == nil {
		noNodes(c)
		return
	}
	masters := c.nodes.atAll(c.nodes.slots.masters)
	from := rand.IntN(len(masters))
	c.askAll(masters, q.raw, func(replies [][]byte) []byte {
		for i := range replies {
			raw := replies[(i+from)%len(replies)]
			if v, err := resp.ParseValue(raw); err != nil || !v.IsNull() {
				return raw
			}
		}
		return replies[0]
	})
}
