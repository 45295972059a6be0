package cluster

// Requests whose node is lost.

import (
	"errors"
	"fmt"
)

// refusal is an error of a Dialer: the node has refused the login.
type refusal interface {
	error
	Refusal() []byte
}

func refusalOf(err error) (r refusal, ok bool) {
	ok = errors.As(err, &r)
	return r, ok
}

// lost handles the requests that a node has not answered before it ended.
func (a *answers) lost(n *node, err error) {
	c := a.c
	waiting, sent := n.waiting.PopAll(), n.sentCount
	n.sentCount = 0
	for _, p := range waiting {
		p.node = nil
	}
	if c.err == nil && c.canLose(n, waiting) {
		a.writesLost = a.writesLost || n.used
		for i, p := range waiting {
			a.lostPart(n, p, i < sent, err)
		}
		for _, p := range waiting {
			c.order.answered(p.slot)
		}
		if !c.writeClosed {
			c.refreshMap()
		}
	} else {
		c.end(fmt.Errorf("node %s: %w", n.addr, err))
	}
	c.replies.wakeReader()
	c.room.Broadcast()
}

// lostPart answers p, or sends it again if nothing of it was sent. A request without a key goes to
// no other node: later requests to all nodes would have overtaken it.
func (a *answers) lostPart(n *node, p *part, sent bool, err error) {
	_, refused := refusalOf(err)
	again := !sent && p.raw != nil && p.tries < maxTries && p.slot >= 0
	if n.Conn != nil {
		again = again && !p.req.internal
	} else { // it was never reached: the map must name another node by now
		slots := a.c.nodes.slots
		again = again && slots != nil && slots.master(p.slot) != n.addr
	}
	switch {
	case a.c.writeClosed:
		p.req.dropped = true
	case refused:
		a.fail(p, n.addr, false, err)
	case p.req.intercept == nil && again: // intercept: it needs the requests before it
		p.tries++
		a.c.dispatch(p)
	default:
		a.fail(p, n.addr, sent, err)
	}
}

// canLose reports whether the Conn can go on without a node that has these parts to answer. c.mu is
// held.
func (c *Conn) canLose(n *node, waiting []*part) bool {
	fatal := n.state != nodeState{} || n.in.push != nil || c.tx.restsOn(n) ||
		c.settings.tracking && n.Conn != nil
	ends := false
	for _, p := range waiting {
		fatal = fatal || p.streamed
		ends = ends || c.EndOnLoss && !p.req.internal
	}
	return !ends && (!fatal || c.writeClosed) // if it is closed, the node was told to end
}

// fail answers p with Options.Failure, or the refusal of the login.
func (a *answers) fail(p *part, addr string, sent bool, err error) {
	if p.req.onFailure != nil {
		p.req.onFailure()
	}
	text := a.c.Failure(addr, sent, err)
	if r, ok := refusalOf(err); ok {
		text = r.Refusal()
	}
	a.partDone(p, text)
}
