package cluster

// What becomes of requests whose node is lost.

import (
	"errors"
	"fmt"
)

// lost settles what a node that has ended owes. c.mu is held.
func (c *Conn) lost(n *node, err error) {
	waiting, taken := n.waiting.all(), n.taken
	n.waiting, n.taken = partQueue{}, 0
	for _, p := range waiting {
		p.node = nil
	}
	stays := c.err == nil && c.survives(n, waiting, err)
	var behind []*part
	if stays {
		behind = c.unhold(n)
	}
	for i, p := range waiting {
		switch {
		case !stays:
		case c.half:
			p.req.void = true // its client is gone
		case isRefusal(err):
			c.fail(p, n.addr, false, err)
		case p.req.intercept != nil:
			c.fail(p, n.addr, i < taken, err) // it is of no use elsewhere without what was before it
		case i >= taken && n.nc != nil && p.raw != nil && p.tries < maxTries && !p.req.hidden:
			p.tries++
			c.dispatch(p) // nothing of it was sent
		case i >= taken && n.nc == nil && p.raw != nil && c.slots != nil && p.slot >= 0 && c.slots.master(p.slot) != n.addr && p.tries < maxTries:
			p.tries++
			c.dispatch(p)
		default:
			c.fail(p, n.addr, i < taken, err)
		}
	}
	if stays {
		for _, p := range behind {
			c.dispatch(p)
		}
		c.cluster.look(c)
	}
	c.readable.Broadcast()
	c.signalRoom()
}

// unhold ends the holding back of what waits for n to answer. What was to be asked again before it is sent on its way; what comes
// behind it is returned. c.mu is held.
func (c *Conn) unhold(n *node) (behind []*part) {
	var again []*part
	for slot, m := range c.moving {
		if m.from != n {
			continue
		}
		delete(c.moving, slot)
		if m.trial == nil {
			again = append(append(again, m.first...), m.again...)
		} else {
			behind = append(behind, m.again...)
		}
		behind = append(behind, m.held...)
	}
	for _, p := range again {
		c.dispatch(p)
	}
	return behind
}

// survives decides whether the Conn goes on without a node, and ends it if not. c.mu is held.
func (c *Conn) survives(n *node, waiting []*part, err error) bool {
	fatal := n.state != nodeState{} || c.txn != nil && c.txn.node == n || c.watched.node == n || c.setup.tracking
	fatal = fatal && !c.half // then it has been told to end, and the others go on
	for _, p := range waiting {
		fatal = fatal || p.passed && !c.half || c.EndOnLoss && !p.req.hidden
	}
	if fatal {
		c.endLocked(&NodeError{Addr: n.addr, Err: err})
	}
	return !fatal
}

// NodeError is the loss of a node with something that can't be had again.
type NodeError struct {
	Addr string
	Err  error
}

func (e *NodeError) Error() string { return fmt.Sprintf("node %s: %v", e.Addr, e.Err) }

func (e *NodeError) Unwrap() error { return e.Err }

// refusal is an error of a node that doesn't let the user in.
type refusal interface {
	error
	Refusal() []byte // the reply to what it would have been asked
}

func isRefusal(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

// fail answers p in the place of a node. c.mu is held.
func (c *Conn) fail(p *part, addr string, sent bool, err error) {
	if t := p.req.txn; t != nil {
		t.lost = true // EXEC must not run without it
	}
	text := c.Failure(addr, sent, err)
	var refused refusal
	if errors.As(err, &refused) {
		text = refused.Refusal()
	}
	c.partDone(p, pieces{first: text, size: len(text)})
}
