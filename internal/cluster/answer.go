package cluster

// A node's answer becomes the reply, or sends the request to another node.

import (
	"slices"

	"lockproxy/internal/resp"
)

// promptTries is how often a request follows a MOVED at once. The nodes disagree if that is not
// enough, and are given time.
const promptTries = 4

var (
	// tryAgainReply is a node's own for keys some of which have moved.
	tryAgainReply  = []byte("-TRYAGAIN Multiple keys request during rehashing of slot\r\n")
	undecidedReply = []byte("-TRYAGAIN The nodes don't agree yet on who serves the slot\r\n")
)

// answers handles what nodes answer. Conn.mu is held in all methods.
type answers struct {
	c    *Conn
	slot int // of the part whose answer is being handled, which does not wait any more; -1 if none
	// writesLost says that a node which the client has used was lost, and no WAIT has said so.
	writesLost bool
}

// answered handles a node's whole reply to p.
func (a *answers) answered(n *node, p *part, h resp.Head, reply []byte) {
	p.node = nil
	a.slot = p.slot // p's can change
	if !p.req.internal {
		n.lastAnswered = p.req
	}
	if p.req.onAnswer != nil {
		p.req.onAnswer(n, h)
	}
	if fails := h.IsError() && !p.streamed; !fails || !a.intercepted(n, p, lineOf(reply)) {
		if !fails || !isRedirect(lineOf(reply)) {
			a.c.order.ran(n, p)
		}
		if p.slot >= 0 && p.req == a.c.replies.newest {
			a.c.replies.answeredBy = answerer{n, p.slot}
		}
		a.partDone(p, reply)
	}
	slot := a.slot
	a.slot = -1
	a.c.order.answered(slot)
	a.c.order.settle(p.slot)
}

// intercepted reports whether an error is not p's answer: p was or will be sent to another node.
func (a *answers) intercepted(n *node, p *part, line []byte) bool {
	if p.req.intercept != nil {
		return p.req.intercept(n, p, line)
	}
	kind, slot, addr := parseRedirect(line, n.addr)
	if kind != notRedirected && !p.mayGoElsewhere(kind) {
		a.c.refreshMap()
		return false
	}
	if p.req.script && !canBeNodes(kind, line, p.slot) {
		return false
	}
	p.refused, p.movedBy = nil, nil
	if kind == down || kind == moved && p.req.script {
		p.refused = slices.Concat([]byte("-"), line, []byte("\r\n"))
	}
	if kind == moved {
		p.movedBy = n
	}
	return kind != notRedirected && a.redirect(n, p, kind, slot, addr)
}

// mayGoElsewhere reports whether another node can run what one has refused. A part of a request to
// several nodes is for its own node, as that of WAIT. A replica refuses a write by itself
// only if it did not find the keys, as LMPOP with a wrong number of them: keys are named by MOVED.
// A script may have run before the write.
func (p *part) mayGoElsewhere(kind redirection) bool {
	if p.slot >= 0 {
		return kind != readOnly
	}
	return p.req.parts == nil && (kind != readOnly || !p.req.script)
}

// redirect sends what n has not run to another node. false says that the client gets the node's
// error. A script's can be its own: it must not lead where no node is.
func (a *answers) redirect(n *node, p *part, kind redirection, slot int, addr string) bool {
	c, doubted := a.c, false
	if kind == moved || kind == ask {
		doubted = p.req.script && !c.nodes.believes(n, p, kind, addr)
		if p.req.script && slot != p.slot || doubted && p.doubtedAt == n.addr {
			return false
		}
		if doubted {
			c.nodes.learnFrom(n, p)
		}
		p.slot = slot
	}
	if kind == moved && !doubted {
		known := c.nodes.slots != nil && c.nodes.slots.master(slot) == addr
		c.nodes.applyMap(c.cluster.slotMoved(slot, addr))
		if !known {
			c.refreshMap()
		}
	}
	if kind == readOnly {
		c.nodes.leaveDefault(n)
	}
	if kind == tryAgain && !p.req.internal && c.order.overtaken(p) {
		return false
	}
	if p.tries++; p.tries > maxTries || c.err != nil {
		c.order.giveUp(p)
		return a.notFollowed(p, kind)
	}
	if p.raw == nil {
		a.partDone(p, resp.AppendError(nil, "UPSTREAM the slot was moved away from "+n.addr+
			" while this large request was on its way: it was not run, try again"))
		return true
	}
	late := kind != moved || p.tries > promptTries || doubted
	if (kind == ask && !doubted || !late && c.nodes.slots == nil) && c.order.inTurn(p) {
		p.asking = kind == ask
		c.nodes.at(addr).push(p)
	} else {
		if late {
			c.refreshMap()
		}
		c.order.wait(p, late)
	}
	c.room.Broadcast() // the queue's head may need another node now
	return true
}

// notFollowed answers p, which was redirected too often. The client can't use the redirection.
func (a *answers) notFollowed(p *part, kind redirection) bool {
	switch kind {
	case moved:
		a.partDone(p, undecidedReply)
	case ask:
		a.partDone(p, tryAgainReply)
	default:
		return false
	}
	return true
}

// partDone gives a part its answer, and the client the reply if it is the last part.
func (a *answers) partDone(p *part, reply []byte) {
	c, r := a.c, p.req
	c.owed(-len(p.raw))
	p.raw, p.reply = nil, reply
	if r.unanswered--; r.unanswered > 0 {
		return
	}
	c.hold(r, -r.heldBytes)
	if r.finish != nil {
		var replies [][]byte
		r.eachPart(func(p *part) { replies = append(replies, p.reply) })
		reply = r.finish(replies)
	}
	r.done = true
	if r.subscribes {
		c.subs.awaited--
	}
	if !r.internal {
		c.replies.unanswered--
		c.subs.deliver(r, reply) // also if it is empty: then the end was missing
	}
	if r.subscribes && c.subs.awaited == 0 {
		c.subs.restore()
	}
	c.in.settled()
	c.room.Broadcast()
}
