package cluster

// WATCH: the connection to one node watches keys, and guards the transaction that is run there.

import "lockproxy/internal/resp"

// watch is WATCH outside of a transaction.
func watch(c *Conn, q *query) {
	slot, _ := c.in.slotOf(q)
	w := &c.tx.watched
	switch {
	case slot == manySlots || w.part != nil && slot >= 0 && slot != w.slot:
		c.replies.answer(crossSlotReply)
	case slot < 0:
		toDefault(c, q)
	case w.part == nil:
		c.tx.firstWatch(q, slot)
	case w.node == nil:
		c.replies.answer(tryAgainReply)
	default:
		w.more = true
		c.tx.ask()
		(&transaction{c: c, node: w.node}).send(q.raw, c.tx.watchRefused)
	}
}

// firstWatch sends a WATCH to the node that serves the slot. It follows redirections as long as
// nothing depends on it.
func (tx *txState) firstWatch(q *query, slot int) {
	c := tx.c
	r := newRequest(q.raw, slot)
	p := &r.one
	tx.watched = watched{part: p, slot: slot}
	r.beforeSend = func(n *node) {
		if tx.watched.part == p && tx.open == nil {
			tx.watched.node = n
		}
	}
	r.intercept = func(n *node, p *part, line []byte) bool {
		kind, at, addr := parseRedirect(line, n.addr)
		alone := tx.watched.part == p && tx.open == nil && !tx.watched.more
		if kind == notRedirected || !alone || p.tries >= maxTries {
			if alone {
				tx.watched = watched{}
			}
			c.order.giveUp(p)
			return tx.watchRefused(n, p, line)
		}
		p.tries++
		tx.watched.node = nil
		tx.watched.asking = kind == ask && c.order.inTurn(p)
		if tx.watched.asking {
			p.asking = true
			c.nodes.at(addr).push(p)
			return true
		}
		c.order.wait(p, true) // later reads may not overtake it
		if kind == moved {
			c.nodes.applyMap(c.cluster.slotMoved(at, addr))
		}
		c.refreshMap()
		return true
	}
	c.send(r, nil)
}

// ask has the node that watches serve what comes next, if it does so only behind ASKING. CLIENT
// CACHING could not come next, too.
func (tx *txState) ask() {
	if tx.watched.asking {
		tx.caching = nil
		tx.watched.node.sendOwn(askingCommand)
	}
}

// watchRefused answers a WATCH that a node has refused.
func (tx *txState) watchRefused(_ *node, p *part, line []byte) bool {
	kind, _, _ := parseRedirect(line, "")
	return tx.c.answers.notFollowed(p, kind)
}

// watch is WATCH within a transaction. Its node refuses it, and may have EXEC fail, as newer ones
// do. A node first checks whose the keys are, so it is asked for one that is its own.
func (t *transaction) watch(q *query) {
	raw := q.raw
	switch at := q.cmd.Keys.Positions(q.args, nil); {
	case t.key != nil && len(at) > 0:
		raw = resp.AppendCommand(nil, q.args[0], t.key)
	case len(at) > 0 && !t.guarded:
		raw = resp.AppendCommand(nil, q.args[0], q.args[at[0]])
		t.goTo(Slot(q.args[at[0]]))
	}
	t.watches = true
	t.send(raw, func(n *node, p *part, line []byte) bool {
		if !isRedirect(line) {
			return false
		}
		t.moved = true // the node has given up the transaction
		t.c.answers.partDone(p, watchInMulti)
		return true
	})
}

// unwatch is UNWATCH outside of a transaction.
func unwatch(c *Conn, q *query) {
	w := c.tx.watched
	if len(q.args) == 1 {
		c.tx.forgetWatch()
	}
	if w.node == nil || len(q.args) > 1 {
		toDefault(c, q)
		return
	}
	r := (&transaction{c: c, node: w.node}).send(q.raw, noRedirects)
	r.onAnswer = func(_ *node, h resp.Head) {
		if h.IsError() && c.tx.watched.part == nil {
			c.tx.watched = w // a refused UNWATCH changes nothing
		}
	}
}
