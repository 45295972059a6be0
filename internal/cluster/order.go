package cluster

// How requests for a slot keep their order while the slot goes from one node to another.

// moving is a slot whose requests are held, so that they don't overtake: while the node that had it has still to say of requests that
// it was sent before that it is another's, and while a request of it can't be run anywhere yet.
type moving struct {
	from   *node   // nil while there is a pause
	left   int     // parts at from
	to     string  // where those go that from has said are another's; "" before the first
	others bool    // further nodes may have been asked for the slot
	first  []*part // in order; what further nodes have not run, and was asked before all else
	again  []*part // in order; from has not run them, and could not say who would
	trial  *part   // the first of those, which is asked for alone until it has an answer; nil before
	held   []*part // in order, behind those
}

// goesTo reports whether what is sent on to a node is in order there, behind all that was sent on before.
func (m *moving) goesTo(addr string) bool {
	if len(m.again) > 0 || m.trial != nil || m.to != "" && m.to != addr {
		return false
	}
	m.to = addr
	return true
}

// adopt takes another map over. What it says is another's now is held until those that have been asked for it have answered. mu is held.
func (c *Conn) adopt(m *slotMap) {
	if m == c.slots || m == nil {
		return
	}
	c.slots = m
	if c.home != nil {
		if master, _ := m.knows(c.home.addr); !master {
			c.home = nil
		}
	}
	for _, n := range c.nodes {
		var owed map[int]int
		for _, p := range n.waiting.all() {
			switch moving := c.moving[max(p.slot, 0)]; {
			case p.slot < 0 || m.master(p.slot) == n.addr:
			case moving == nil:
				if owed == nil {
					owed = map[int]int{}
				}
				owed[p.slot]++
			case moving.from != n:
				moving.others = true
			}
		}
		for slot, left := range owed {
			c.startMoving(n, slot, left)
		}
	}
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

// startMoving begins to hold a slot's requests back for as long as n owes left of them, and the one whose answer is being looked at.
func (c *Conn) startMoving(n *node, slot, left int) *moving {
	if c.moving == nil {
		c.moving = map[int]*moving{}
	}
	if by := c.answering; by.node == n && by.part.slot == slot {
		left++ // which passed takes off
	}
	m := &moving{from: n, left: left}
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
	case m == nil:
		c.later(p)
	case m.from != n:
		m.first = append(m.first, p)
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
		slot := m.trial.slot
		if c.owed(slot, "") != nil {
			c.tryLater(m)
			return
		}
		if len(m.first) > 0 {
			m.again = append(append(m.first[1:], m.trial), m.again...)
			m.trial, m.first = m.first[0], nil
		}
		m.from, m.left = c.slotNode(slot), 1
		m.from.push(m.trial)
	})
}

// owed is a node that has been asked for a slot and has not answered, but for one at an address; nil if there is none.
func (c *Conn) owed(slot int, but string) *node {
	for _, n := range c.nodes {
		if n.addr != but && n.owes(slot) > 0 {
			return n
		}
	}
	return nil
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

// release ends the holding back of a slot's requests, unless yet another node has been asked for it. c.mu is held.
func (c *Conn) release(slot int, m *moving) {
	delete(c.moving, slot)
	behind := append(append(m.first, m.again...), m.held...)
	if m.others && c.slots != nil {
		if n := c.owed(slot, c.slots.master(slot)); n != nil {
			next := c.startMoving(n, slot, n.owes(slot))
			next.held, next.others = behind, true
			return
		}
	}
	for _, p := range behind {
		c.dispatch(p)
	}
}
