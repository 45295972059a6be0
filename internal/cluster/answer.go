package cluster

// What happens with the answers of nodes, and when there are none.

import (
	"time"

	"lockproxy/internal/resp"
)

const (
	// maxTries is how often a request is sent elsewhere because of what nodes say, before the client is told what they say.
	maxTries = 12
	// promptTries is how often it follows a MOVED at once. After that the nodes don't agree, and are given time to.
	promptTries = 4
	// firstDelay is after how long it is asked again where nobody could say who else to ask. It doubles up to maxDelay: half a second in all.
	firstDelay, maxDelay = 2 * time.Millisecond, 80 * time.Millisecond
)

// answered takes a node's whole reply to p. c.mu is held.
func (c *Conn) answered(n *node, p *part, h resp.Head, reply pieces) {
	p.node = nil
	c.answering = answering{p, n}
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
	c.answering = answering{}
	c.passed(n, p.slot)
}

// answering is the part whose answer is being looked at, which its node has no longer among those that wait.
type answering struct {
	part *part
	node *node
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
	if kind == moved || kind == ask {
		p.slot = slot
	}
	if kind == moved {
		c.hold(n, slot)
		c.adopt(c.cluster.moved(slot, addr))
		c.cluster.look(c)
	}
	if p.tries++; p.tries > maxTries || c.err != nil {
		c.giveUp(p)
		return c.notFollowed(p, kind)
	}
	if p.raw == nil {
		text := c.notKept(n.addr)
		c.partDone(p, pieces{first: text, size: len(text)})
		return true
	}
	m := c.moving[p.slot]
	switch {
	case kind != moved && kind != ask, kind == moved && p.tries > promptTries:
		c.cluster.look(c)
		c.holdBack(n, p)
	case m != nil && m.trial != p && !m.goesTo(addr):
		c.holdBack(n, p) // it may not overtake, wherever it goes
	default:
		p.asking = kind == ask
		to := c.nodeAt(addr)
		if m != nil && m.trial == p {
			m.from, m.left = to, 1
		}
		to.push(p)
	}
	c.signalRoom() // what n or another had to wait for may have changed
	return true
}

// notFollowed answers p, which a node has sent elsewhere too often. Where to is nothing that the client could make use of, or should.
func (c *Conn) notFollowed(p *part, kind redirection) bool {
	switch kind {
	case moved:
		c.partDone(p, pieces{first: undecidedReply, size: len(undecidedReply)})
	case ask:
		c.partDone(p, pieces{first: tryAgainReply, size: len(tryAgainReply)})
	default:
		return false
	}
	return true
}

var (
	// tryAgainReply is what a node says of keys some of which have moved already.
	tryAgainReply = []byte("-TRYAGAIN Multiple keys request during rehashing of slot\r\n")
	// undecidedReply is for a slot that each node says is another's.
	undecidedReply = []byte("-TRYAGAIN The nodes don't agree yet on who serves the slot\r\n")
)

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
