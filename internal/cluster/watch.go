package cluster

// WATCH: what is watched is known to one connection to one node, and guards the transaction that is run there.

import "lockproxy/internal/resp"

// watched is what a WATCH has said.
type watched struct {
	part *part // the WATCH; nil if nothing is watched
	node *node // nil while it waits to be sent
	slot int
	more bool // a further WATCH has gone to the same node
}

// watch is WATCH outside of a transaction.
func watch(c *Conn, q *query) {
	slot, _ := c.slotOf(q)
	w := &c.watched
	switch {
	case slot == manySlots || w.part != nil && slot >= 0 && slot != w.slot:
		c.local(crossSlot)
	case slot < 0:
		toHome(c, q)
	case w.part != nil && w.node == nil:
		c.local(tryAgainReply)
	case w.part != nil:
		w.more = true
		c.inTransaction(q, &transaction{node: w.node}, c.notWatched)
	default:
		c.firstWatch(q, slot)
	}
}

// firstWatch sends a WATCH to who serves the slot, and on to who turns out to serve it, as long as nothing rests on it.
func (c *Conn) firstWatch(q *query, slot int) {
	r := newRequest(q.raw, slot)
	p := &r.one
	c.watched = watched{part: p, slot: slot}
	r.before = func(n *node) {
		if c.watched.part == p && c.txn == nil {
			c.watched.node = n
		}
	}
	r.intercept = func(p *part, line []byte) bool {
		n := c.answering.node
		kind, at, addr := redirected(line, n.addr)
		alone := c.watched.part == p && c.txn == nil && !c.watched.more
		if kind == notRedirected || !alone || p.tries >= maxTries {
			if alone {
				c.watched = watched{}
			}
			c.giveUp(p)
			return c.notWatched(p, line)
		}
		p.tries++
		c.watched.node = nil
		c.holdBack(n, p) // what is read behind it must not be read before
		if kind == moved {
			c.adopt(c.cluster.moved(at, addr))
		}
		c.cluster.look(c)
		return true
	}
	c.kept += len(q.raw)
	c.enqueue(r)
	c.dispatch(p)
}

// notWatched answers a WATCH that a node has refused.
func (c *Conn) notWatched(p *part, line []byte) bool {
	kind, _, _ := redirected(line, "")
	return c.notFollowed(p, kind)
}

// forgetWatch ends what is watched, as far as the Conn is concerned: EXEC, DISCARD and their like end it at its node, unless that is still
// to hear of it.
func (c *Conn) forgetWatch() {
	w := c.watched
	c.watched = watched{}
	if w.part != nil && w.node == nil {
		r := c.ownRequest(unwatchCommand, nil)
		r.one.slot = w.slot
		c.dispatch(&r.one)
	}
}

// unwatch is UNWATCH outside of a transaction. If it is refused what was watched still is.
func unwatch(c *Conn, q *query) {
	w := c.watched
	if w.node == nil || len(q.args) > 1 {
		if len(q.args) == 1 {
			c.forgetWatch()
		}
		toHome(c, q)
		return
	}
	c.forgetWatch()
	c.inTransaction(q, &transaction{node: w.node}, nil)
	c.last.each = func(_ *node, _ *part, h resp.Head) {
		if h.IsError() && c.watched.part == nil {
			c.watched = w
		}
	}
}
