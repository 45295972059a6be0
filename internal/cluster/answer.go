package cluster

// What happens with the answers of nodes, and when there are none.

import (
	"time"

	"lockproxy/internal/resp"
)

const (
	// maxTries is how often a request is sent elsewhere because of what nodes say, before the client is told what they say.
	maxTries = 12
	// firstDelay is after how long it is asked again where nobody could say who else to ask. It doubles up to maxDelay: half a second in all.
	firstDelay, maxDelay = 2 * time.Millisecond, 80 * time.Millisecond
)

// answered takes a node's whole reply to p. c.mu is held.
func (c *Conn) answered(n *node, p *part, h resp.Head, reply pieces) {
	p.node = nil
	if !p.req.hidden {
		n.answered = p.req
	}
	if p.req.each != nil {
		p.req.each(n, p, h)
	}
	if !h.IsError() || !c.elsewhere(n, p, errorLine(reply.bytes())) {
		if p.slot >= 0 && p.req == c.newest {
			c.answeredFor = answeredFor{p.slot, n}
		}
		c.partDone(p, reply)
	}
	c.passed(n, p.slot)
}

// elsewhere reports whether an error isn't p's answer, since p has been or will be asked elsewhere. c.mu is held.
func (c *Conn) elsewhere(n *node, p *part, line []byte) bool {
	if p.req.intercept != nil {
		return p.req.intercept(p, line)
	}
	if p.req.hidden && !p.req.follows {
		return false
	}
	kind, slot, addr := redirected(line, n.addr)
	return kind != notRedirected && c.redirect(n, p, kind, slot, addr)
}

// partDone gives a part its answer. c.mu is held.
func (c *Conn) partDone(p *part, reply pieces) {
	c.kept -= len(p.raw)
	p.raw, p.reply = nil, reply
	r := p.req
	if r.left--; r.left > 0 {
		r.held += reply.size
		c.buffered += reply.size
		return
	}
	c.buffered -= r.held
	if r.finish != nil {
		var replies [][]byte
		r.eachPart(func(p *part) { replies = append(replies, p.reply.bytes()) })
		text := r.finish(replies)
		reply = pieces{first: text, size: len(text)}
	}
	r.done = true
	if !r.hidden {
		c.give(r, reply)
		if r == c.head {
			c.readable.Signal() // even if there is nothing more to give
		}
	}
	c.signalRoom()
}

// redirect asks elsewhere for what a node has not run. It returns false if the client is to be told what the node says. c.mu is held.
func (c *Conn) redirect(n *node, p *part, kind redirection, slot int, addr string) bool {
	if kind == moved {
		c.slots = c.cluster.moved(c.slots, slot, addr)
		c.cluster.look(c)
	}
	if p.tries++; p.tries > maxTries || c.err != nil {
		c.giveUp(p)
		if kind == ask { // only a cluster's clients could make anything of it
			c.partDone(p, pieces{first: tryAgainReply, size: len(tryAgainReply)})
			return true
		}
		return false
	}
	if p.raw == nil {
		text := c.notKept(n.addr)
		c.partDone(p, pieces{first: text, size: len(text)})
		return true
	}
	m := c.moving[p.slot]
	switch {
	case kind == moved || kind == ask:
		if m != nil && len(m.again) > 0 && m.trial != p {
			c.holdBack(n, p) // it may not overtake, wherever it goes
			break
		}
		p.slot = slot
		p.asking = kind == ask
		if kind == moved {
			c.hold(n, slot)
		}
		to := c.nodeAt(addr)
		if m != nil && m.trial == p {
			m.from, m.left = to, 1
		}
		to.push(p)
	default:
		c.cluster.look(c)
		c.holdBack(n, p)
	}
	c.signalRoom() // what n or another had to wait for may have changed
	return true
}

// tryAgainReply is what a node says of keys some of which have moved already.
var tryAgainReply = []byte("-TRYAGAIN Multiple keys request during rehashing of slot\r\n")

func (c *Conn) notKept(addr string) []byte {
	return resp.AppendError(nil, "UPSTREAM the slot was moved away from "+addr+" while this large request was on its way: it was not run, try again")
}

// later asks for p again in a moment. c.mu is held.
func (c *Conn) later(p *part) { c.afterDelay(p, func() { c.dispatch(p) }) }

// afterDelay calls do, with c.mu held, in a moment that is the longer the more often p has been tried. c.mu is held.
func (c *Conn) afterDelay(p *part, do func()) {
	c.after(min(firstDelay<<min(max(p.tries-1, 0), 10), maxDelay), do)
}

// after calls do, with c.mu held, unless the Conn has ended by then. c.mu is held.
func (c *Conn) after(delay time.Duration, do func()) {
	c.running.Add(1)
	var timer *time.Timer
	timer = time.AfterFunc(delay, func() { // endLocked stops it, or Close awaits it
		defer c.running.Done()
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.delayed, timer)
		if c.err == nil {
			do()
		}
	})
	c.delayed[timer] = struct{}{}
}

// moving is a slot whose requests are held, so that they don't overtake: while the node that had it has still to say of requests that
// it was sent before that it is another's, and while a request of it can't be run anywhere yet.
type moving struct {
	from  *node   // nil while there is a pause
	left  int     // parts at from
	again []*part // in order; from has not run them, and could not say who would
	trial *part   // the first of those, which is asked for alone until it has an answer; nil before
	held  []*part // in order, behind those
}

// hold begins to hold a slot's requests back, if n has any. c.mu is held.
func (c *Conn) hold(n *node, slot int) {
	if c.moving[slot] != nil {
		return
	}
	if left := n.owes(slot); left > 0 {
		c.startMoving(n, slot, left)
	}
}

// owes is how many requests for a slot n has still to answer.
func (n *node) owes(slot int) (left int) {
	for _, p := range n.waiting.all() {
		if p.slot == slot {
			left++
		}
	}
	return left
}

func (c *Conn) startMoving(n *node, slot, left int) *moving {
	if c.moving == nil {
		c.moving = map[int]*moving{}
	}
	m := &moving{from: n, left: left + 1} // and the one that was answered, which passed takes off
	c.moving[slot] = m
	return m
}

// holdBack has p, which n has not run, asked again in a moment, and what else its slot is asked not before. c.mu is held.
func (c *Conn) holdBack(n *node, p *part) {
	m := c.moving[p.slot]
	if m == nil && p.slot >= 0 {
		m = c.startMoving(n, p.slot, n.owes(p.slot))
	}
	switch {
	case m == nil || m.from != n:
		c.later(p)
	case m.trial == p:
		c.tryLater(m)
	default:
		m.again = append(m.again, p)
	}
}

// tryLater asks for the first of those that are to be asked again, in a moment. c.mu is held.
func (c *Conn) tryLater(m *moving) {
	m.from = nil
	c.afterDelay(m.trial, func() {
		m.from, m.left = c.slotNode(m.trial.slot), 1
		m.from.push(m.trial)
	})
}

// giveUp lets what has waited behind p, which has been tried often enough, be tried once more only. c.mu is held.
func (c *Conn) giveUp(p *part) {
	m := c.moving[p.slot]
	if m == nil || m.trial != p {
		return
	}
	for _, behind := range append(m.again, m.held...) {
		behind.tries = max(behind.tries, maxTries)
	}
}

// passed takes note that n has answered a request for slot. c.mu is held.
func (c *Conn) passed(n *node, slot int) {
	m := c.moving[slot]
	if m == nil || m.from != n {
		return
	}
	if m.left--; m.left > 0 {
		return
	}
	if m.trial != nil || len(m.again) == 0 {
		c.release(slot, m)
		return
	}
	m.trial, m.again = m.again[0], m.again[1:]
	c.tryLater(m)
}

// release ends the holding back of a slot's requests. c.mu is held.
func (c *Conn) release(slot int, m *moving) {
	delete(c.moving, slot)
	for _, p := range append(m.again, m.held...) {
		c.dispatch(p)
	}
}
