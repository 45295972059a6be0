package cluster

// MULTI: a transaction is one node's, and all its keys are in one slot.

import (
	"bytes"

	"lockproxy/internal/resp"
)

// transaction is what stands between a MULTI and its EXEC. It begins at home and moves, as long as it has had no keys, to where the
// first of them are. What it queues is kept, so that it can be run elsewhere if the node turns out not to have the keys any more: then
// nothing of it has run.
type transaction struct {
	node    *node
	slot    int      // of its keys; -1 as long as it has none
	raws    [][]byte // what was queued
	size    int      // bytes of raws
	lost    bool     // not all that was queued is in raws
	guarded bool     // a WATCH was in force, which only its node knows
	void    bool     // that WATCH had not been sent yet, so EXEC does nothing
	aside   bool     // a node has said that a key is not its own
	caching []byte   // CLIENT CACHING, which was said of it; nil if nothing was
}

// maxQueued is how much of a transaction is kept so that it can be run elsewhere, bytes.
const maxQueued = 1 << 20

var (
	multiCommand   = resp.AppendCommand(nil, "MULTI")
	execCommand    = resp.AppendCommand(nil, "EXEC")
	discardCommand = resp.AppendCommand(nil, "DISCARD")
	unwatchCommand = resp.AppendCommand(nil, "UNWATCH")
	// abortCommand is refused by every Redis, and aborts the transaction with that.
	abortCommand = resp.AppendCommand(nil, "GET")
	watchInMulti = []byte("-ERR WATCH inside MULTI is not allowed\r\n")
	queuedReply  = []byte("+QUEUED\r\n")
)

// multi is MULTI outside of a transaction.
func multi(c *Conn, q *query) {
	t := &transaction{slot: -1, caching: c.caching}
	if w := c.watched; w.part != nil {
		t.node, t.slot, t.guarded, t.void = w.node, w.slot, true, w.node == nil
	}
	if t.node == nil {
		t.node = c.homeNode()
	}
	r := newRequest(q.raw, -1)
	r.txn = t
	r.finish = func(replies [][]byte) []byte {
		if isError(replies[0]) && c.txn == t {
			c.txn = nil
		}
		return replies[0]
	}
	c.kept += len(q.raw)
	c.enqueue(r)
	t.node.push(&r.one)
	c.txn = t
}

// queue is for all that comes within a transaction. mu is held.
func (c *Conn) queue(q *query) {
	t := c.txn
	switch name := q.cmd.Name; name {
	case "exec":
		c.exec(q, t)
		return
	case "discard":
		c.discard(q, t)
		return
	case "multi":
		c.inTransaction(q, t, nil)
		return
	case "watch": // a node would first look whose key it is
		c.local(watchInMulti)
		return
	case "reset", "quit":
		if name == "reset" && len(q.args) > 1 {
			c.inTransaction(q, t, nil) // it is refused, which aborts the transaction
			return
		}
		q.cmd.run(c, q)
		return
	case "auth", "hello", "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe", "monitor", "scan":
		c.abort(q, t, notInMulti(name))
		return
	}
	slot, _ := c.slotOf(q)
	switch {
	case q.cmd.Nodes.Several():
		c.abort(q, t, notInMulti(string(q.args[0])))
	case slot == manySlots, slot >= 0 && t.slot >= 0 && slot != t.slot:
		c.abort(q, t, crossSlot)
	default:
		if slot >= 0 && t.slot < 0 {
			c.settle(t, slot)
		}
		c.inTransaction(q, t, func(p *part, line []byte) bool {
			if kind, _, _ := redirected(line, ""); kind == notRedirected {
				return false
			}
			t.aside = true
			c.partDone(p, pieces{first: queuedReply, size: len(queuedReply)})
			return true
		})
		t.keep(q.raw)
	}
}

// discard is DISCARD within a transaction. EXEC behind it ends the transaction where the user may not DISCARD, which has aborted it then.
func (c *Conn) discard(q *query, t *transaction) {
	if len(q.args) > 1 {
		c.inTransaction(q, t, nil) // it is refused: the transaction goes on, aborted
		return
	}
	c.txn = nil
	c.forgetWatch()
	c.inTransaction(q, t, nil)
	t.node.push(&c.ownRequest(execCommand, nil).one)
}

// leave ends a transaction that is to be run elsewhere, also for a user who may not DISCARD.
func (c *Conn) leave(n *node) {
	n.push(&c.ownRequest(abortCommand, nil).one)
	n.push(&c.ownRequest(execCommand, nil).one)
}

func notInMulti(name string) []byte {
	return resp.AppendError(nil, "ERR "+name+" can't be part of a transaction on a cluster, which is run by one node")
}

func (t *transaction) keep(raw []byte) {
	t.size += len(raw)
	if t.size > maxQueued || t.lost {
		t.raws, t.lost = nil, true
		return
	}
	t.raws = append(t.raws, append([]byte(nil), raw...))
}

// inTransaction asks the transaction's node. intercept is called with an error before the client sees it; true says that it has dealt
// with it.
func (c *Conn) inTransaction(q *query, t *transaction, intercept func(p *part, line []byte) bool) {
	r := newRequest(q.raw, -1)
	r.intercept = intercept
	if intercept == nil {
		r.intercept = func(*part, []byte) bool { return false }
	}
	r.txn = t
	c.kept += len(q.raw)
	c.enqueue(r)
	t.node.push(&r.one)
}

// abort answers a command that can't be queued, and makes EXEC fail as Redis does after such a one.
func (c *Conn) abort(q *query, t *transaction, text []byte) {
	r := newRequest(abortCommand, -1)
	r.finish = func([][]byte) []byte { return text }
	r.intercept = func(*part, []byte) bool { return false }
	c.kept += len(abortCommand)
	c.enqueue(r)
	t.node.push(&r.one)
	t.lost = true
}

// settle moves the transaction to where its first keys are.
func (c *Conn) settle(t *transaction, slot int) {
	t.slot = slot
	n := c.slotNode(slot)
	if n == t.node {
		return
	}
	c.leave(t.node)
	t.node = n
	c.begin(t, n)
}

// begin tells a node what was queued so far.
func (c *Conn) begin(t *transaction, n *node) {
	if t.caching != nil {
		n.push(&c.ownRequest(t.caching, nil).one)
	}
	n.push(&c.ownRequest(multiCommand, nil).one)
	for _, raw := range t.raws {
		r := c.ownRequest(raw, nil)
		r.intercept = func(p *part, line []byte) bool {
			kind, _, _ := redirected(line, "")
			t.aside = t.aside || kind != notRedirected
			return false
		}
		n.push(&r.one)
	}
	if t.lost {
		n.push(&c.ownRequest(abortCommand, nil).one)
	}
}

var (
	nullTwo   = []byte("*-1\r\n")
	nullThree = []byte("_\r\n")
)

// nothingRun is EXEC's answer when what was watched has changed.
func (c *Conn) nothingRun() []byte {
	if c.setup.proto == 3 {
		return nullThree
	}
	return nullTwo
}

// exec ends the transaction. If its node has not run it because the keys are elsewhere, another does. If something was watched
// there, it is answered as if that had changed, which the client has to expect, since nobody can say that it has not.
func (c *Conn) exec(q *query, t *transaction) {
	c.txn = nil
	c.forgetWatch()
	if t.void {
		c.inTransaction(&query{raw: discardCommand}, t, nil)
		c.last.finish = func([][]byte) []byte { return c.nothingRun() }
		t.node.push(&c.ownRequest(execCommand, nil).one)
		return
	}
	r := newRequest(q.raw, t.slot)
	begin := func(n *node) {
		t.node, t.aside = n, false
		c.begin(t, n)
	}
	r.intercept = func(p *part, line []byte) bool {
		n := c.answering.node
		kind, slot, addr := redirected(line, n.addr)
		if kind == notRedirected && !(t.aside && bytes.HasPrefix(line, []byte("EXECABORT"))) {
			return false
		}
		if kind == moved || kind == ask {
			p.slot, t.slot = slot, slot
		}
		p.tries++
		dealt := true
		switch {
		case t.guarded:
			text := c.nothingRun()
			c.partDone(p, pieces{first: text, size: len(text)})
		case t.lost || p.tries > maxTries:
			c.giveUp(p)
			dealt = c.notFollowed(p, kind)
		default:
			r.before = begin
			c.holdBack(n, p) // what comes behind it may not overtake
		}
		if kind == moved {
			c.adopt(c.cluster.moved(slot, addr))
		}
		c.cluster.look(c)
		return dealt
	}
	c.kept += len(q.raw)
	c.enqueue(r)
	if t.slot < 0 || t.guarded || c.moving[t.slot] == nil && c.slotNode(t.slot) == t.node {
		t.node.push(&r.one)
		return
	}
	c.leave(t.node) // it is not the one to run it any more, or not yet
	r.before = begin
	c.dispatch(&r.one)
}
