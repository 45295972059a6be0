package cluster

// How the requests for a slot keep their order while the slot moves from one node to another.

import "time"

// maxTries is how often a request is sent again before the client is told why.
const maxTries = 12

// The delay before a request is sent again doubles with each try: half a second in all.
const firstDelay, maxDelay = 2 * time.Millisecond, 80 * time.Millisecond

// slotOrder holds requests so that they do not overtake others for the same slot. Conn.mu is held
// in all methods.
type slotOrder struct {
	c     *Conn
	holds map[int]*slotHold // by slot
}

// slotHold is what is held for one slot: while a node that was asked for the slot has still to say
// whether another node serves it, and while no node can run a request for it.
type slotHold struct {
	from   *node   // the node that has to answer; nil during a delay
	left   int     // how many requests from has to answer
	to     string  // the node that from has named, which was sent what from has not run; "" if none
	others bool    // other nodes may have been asked for the slot too
	first  []*part // those that other nodes have not run; they come before again
	again  []*part // those that from has not run without naming a node
	probe  *part   // the first of again, which is sent alone until it has an answer; nil before
	held   []*part // those that have come since
}

// leadsTo reports whether a part that is sent to a node is in order there, and records that it is.
func (h *slotHold) leadsTo(addr string) bool {
	if len(h.again) > 0 || h.probe != nil || h.to != "" && h.to != addr {
		return false
	}
	h.to = addr
	return true
}

// held holds p if its slot's requests are held, and reports whether they are.
func (o *slotOrder) held(p *part) bool {
	h := o.holds[p.slot]
	if h != nil {
		p.raw = append([]byte(nil), p.raw...)
		h.held = append(h.held, p)
	}
	return h != nil
}

// holdMoved holds the slots that n has to answer for and m gives to another node.
func (o *slotOrder) holdMoved(n *node, m *slotMap) {
	var owed map[int]int
	for _, p := range n.waiting.all() {
		switch h := o.holds[max(p.slot, 0)]; {
		case p.slot < 0 || m.master(p.slot) == n.addr:
		case h == nil:
			if owed == nil {
				owed = map[int]int{}
			}
			owed[p.slot]++
		case h.from != n:
			h.others = true
		}
	}
	for slot, left := range owed {
		o.start(n, slot, left)
	}
}

// hold holds a slot's requests if n has some to answer.
func (o *slotOrder) hold(n *node, slot int) {
	if left := n.owes(slot); left > 0 && o.holds[slot] == nil {
		o.start(n, slot, left)
	}
}

// start holds a slot's requests until n has answered left of them, and the one whose answer is
// being handled.
func (o *slotOrder) start(n *node, slot, left int) *slotHold {
	if a := &o.c.answers; a.node == n && a.part.slot == slot {
		left++ // answered will subtract it
	}
	h := &slotHold{from: n, left: left}
	o.holds[slot] = h
	return h
}

// setSlot is called when n answers p with the slot of its keys, which can be another than p has.
func (o *slotOrder) setSlot(n *node, p *part, slot int) {
	if h := o.holds[slot]; h != nil && h.from == n && slot != p.slot {
		h.left++ // answered will subtract it
	}
	p.slot = slot
}

// postpone sends p, which n has not run, again after a delay, and holds the rest of its slot until
// then.
func (o *slotOrder) postpone(n *node, p *part) {
	h := o.holds[p.slot]
	if h == nil && p.slot >= 0 {
		h = o.start(n, p.slot, n.owes(p.slot))
	}
	switch {
	case h == nil:
		o.retry(p)
	case h.from != n:
		h.first = append(h.first, p)
	case h.probe == p:
		o.probeLater(h)
	default:
		h.again = append(h.again, p)
	}
}

// probeLater sends the probe after a delay, when no node has to answer for the slot any more.
func (o *slotOrder) probeLater(h *slotHold) {
	h.from = nil
	o.afterDelay(h.probe, func() {
		slot := h.probe.slot
		if o.waitingNode(slot, "") != nil {
			o.probeLater(h)
			return
		}
		if len(h.first) > 0 {
			h.again = append(append(h.first[1:], h.probe), h.again...)
			h.probe, h.first = h.first[0], nil
		}
		h.from, h.left = o.c.nodes.forSlot(slot), 1
		h.from.push(h.probe)
	})
}

// waitingNode is a node that has to answer for a slot, except the one at an address; nil if none.
func (o *slotOrder) waitingNode(slot int, except string) *node {
	for _, n := range o.c.nodes.byAddr {
		if n.addr != except && n.owes(slot) > 0 {
			return n
		}
	}
	return nil
}

// giveUp is called when p was tried often enough. Requests that wait behind it are tried only once.
func (o *slotOrder) giveUp(p *part) {
	h := o.holds[p.slot]
	if h == nil || h.probe != p {
		return
	}
	for _, behind := range append(h.again, h.held...) {
		behind.tries = max(behind.tries, maxTries)
	}
}

// answered is called when n has answered a request for slot.
func (o *slotOrder) answered(n *node, slot int) {
	h := o.holds[slot]
	if h == nil || h.from != n {
		return
	}
	if h.left--; h.left > 0 {
		return
	}
	if h.probe != nil || len(h.again) == 0 {
		o.release(slot, h)
		return
	}
	h.probe, h.again = h.again[0], h.again[1:]
	o.probeLater(h)
}

// release sends the parts held for a slot, unless yet another node has to answer for it.
func (o *slotOrder) release(slot int, h *slotHold) {
	delete(o.holds, slot)
	behind := append(append(h.first, h.again...), h.held...)
	if slots := o.c.nodes.slots; h.others && slots != nil {
		if n := o.waitingNode(slot, slots.master(slot)); n != nil {
			next := o.start(n, slot, n.owes(slot))
			next.held, next.others = behind, true
			return
		}
	}
	for _, p := range behind {
		o.c.dispatch(p)
	}
}

// releaseHeldFor ends the holds that wait for n, which is lost. It sends the requests that come
// before n's others, and returns those behind them.
func (o *slotOrder) releaseHeldFor(n *node) (behind []*part) {
	var again []*part
	for slot, h := range o.holds {
		if h.from != n {
			continue
		}
		delete(o.holds, slot)
		if h.probe == nil {
			again = append(append(again, h.first...), h.again...)
		} else {
			behind = append(behind, h.again...)
		}
		behind = append(behind, h.held...)
	}
	for _, p := range again {
		o.c.dispatch(p)
	}
	return behind
}

// retry sends p again after a delay.
func (o *slotOrder) retry(p *part) { o.afterDelay(p, func() { o.c.dispatch(p) }) }

// afterDelay calls do after a delay that grows with p's tries.
func (o *slotOrder) afterDelay(p *part, do func()) {
	o.c.after(min(firstDelay<<min(max(p.tries-1, 0), 10), maxDelay), do)
}
