package cluster

// The requests for a slot keep their order while the slot moves from one node to another.

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// maxTries is how often a request is sent again before the client is told why.
const maxTries = 12

// The delay before a request is sent again doubles with each try: half a second in all.
const firstDelay, maxDelay = 2 * time.Millisecond, 80 * time.Millisecond

// slotOrder holds requests so that they do not overtake others for the same slot. Conn.mu is held
// in all methods.
type slotOrder struct {
	c     *Conn
	holds map[int]*slotHold // by slot
	turns int64             // how many requests there were
}

// slotHold is the requests for one slot that wait until no node has to answer for it any more:
// those that a node has not run, and those that have come since.
type slotHold struct {
	owed    int     // how many requests for the slot nodes have still to answer
	waiting []*part // in any order
	late    bool    // the first is sent alone, after a delay, to see whether a node can run it
	delayed bool    // that delay has begun
}

// turn numbers a request by when it has come.
func (o *slotOrder) turn() int64 {
	o.turns++
	return o.turns
}

// held holds p if its slot's requests are held, and reports whether they are.
func (o *slotOrder) held(p *part) bool {
	h := o.holds[p.slot]
	if h != nil {
		p.raw = append([]byte(nil), p.raw...)
		h.waiting = append(h.waiting, p)
	}
	return h != nil
}

// holdMoved holds the slots that nodes have to answer for and m gives to others.
func (o *slotOrder) holdMoved(m *slotMap) {
	begun := map[int]*slotHold{}
	for _, n := range o.c.nodes.byAddr {
		for _, p := range n.waiting.All() {
			if p.slot >= 0 && m.master(p.slot) != n.addr && o.holds[p.slot] == nil {
				begun[p.slot] = &slotHold{}
			}
		}
	}
	o.begin(begun)
}

// begin begins holds.
func (o *slotOrder) begin(holds map[int]*slotHold) {
	maps.Copy(o.holds, holds)
	count := func(slot int) {
		if h := holds[slot]; h != nil {
			h.owed++
		}
	}
	for _, n := range o.c.nodes.byAddr {
		for _, p := range n.waiting.All() {
			count(p.slot)
		}
	}
	count(o.c.answers.slot) // answered will subtract it
}

// wait holds p, which a node has not run, and all others for its slot. late says that it is sent
// again after a delay.
func (o *slotOrder) wait(p *part, late bool) {
	if p.slot < 0 {
		o.c.after(p.delay(), func() { o.c.dispatch(p) })
		return
	}
	if o.holds[p.slot] == nil {
		o.begin(map[int]*slotHold{p.slot: {}})
	}
	h := o.holds[p.slot]
	h.waiting, h.late = append(h.waiting, p), h.late || late
}

// inTurn reports whether p, whose answer is being handled, is the first of all for its slot.
func (o *slotOrder) inTurn(p *part) bool {
	h, own := o.holds[p.slot], 0
	if o.c.answers.slot == p.slot { // a node can have said that it is another
		own = 1
	}
	earlier := func(other *part) bool { return other.req.turn < p.req.turn }
	return h == nil || o.c.replies.head == p.req ||
		h.owed == own && !slices.ContainsFunc(h.waiting, earlier)
}

// overtaken reports whether later requests for p's slot are on their way to a node, which may run
// them although it has not run p, because of its keys: sent again, p would run behind them.
func (o *slotOrder) overtaken(p *part) bool {
	for _, n := range o.c.nodes.byAddr {
		for _, other := range n.waiting.All() {
			if other.slot == p.slot && other.req.turn > p.req.turn {
				return true
			}
		}
	}
	return false
}

// ran is called when n has run p. Earlier requests for the slot that wait since a node has refused
// them would run behind p: the client gets the refusal. A node that says MOVED runs no later
// request with keys in the slot, so it was the script that said so.
func (o *slotOrder) ran(n *node, p *part) {
	h := o.holds[p.slot]
	if h == nil || p.req.internal {
		return
	}
	behind := func(other *part) bool {
		return other.refused != nil && other.req.turn < p.req.turn &&
			(other.movedBy == nil || other.movedBy == n && !p.req.keyless)
	}
	var refused []*part
	for _, other := range h.waiting {
		if behind(other) {
			refused = append(refused, other)
		}
	}
	h.waiting = slices.DeleteFunc(h.waiting, behind)
	for _, other := range refused {
		o.c.answers.partDone(other, other.refused)
	}
}

// giveUp is called when p was tried often enough. Requests that wait behind it are tried only once.
func (o *slotOrder) giveUp(p *part) {
	if h := o.holds[p.slot]; h != nil && o.inTurn(p) {
		for _, behind := range h.waiting {
			behind.tries = max(behind.tries, maxTries)
		}
	}
}

// sendHead sends the request whose reply the client reads next, if it is held: it is behind no
// other. The slot's hold can wait for a reply that is behind others, which are not read before.
func (o *slotOrder) sendHead() {
	if o.c.replies.head == nil {
		return
	}
	o.c.replies.head.eachPart(func(p *part) {
		h := o.holds[p.slot]
		if h == nil || h.delayed || !slices.Contains(h.waiting, p) {
			return
		}
		h.waiting = slices.DeleteFunc(h.waiting, func(other *part) bool { return other == p })
		h.owed++ // until it is sent
		o.c.after(p.delay(), func() {
			h.owed--
			o.c.nodes.forSlot(p.slot).push(p)
		})
	})
}

// sent is called when a node is sent p.
func (o *slotOrder) sent(p *part) {
	if h := o.holds[p.slot]; h != nil {
		h.owed++
	}
}

// answered is called when a node has answered a request for slot, or is lost with it.
func (o *slotOrder) answered(slot int) {
	if h := o.holds[slot]; h != nil {
		h.owed--
		o.settle(slot)
	}
}

// settle sends what waits for a slot, if no node has to answer for it any more.
func (o *slotOrder) settle(slot int) {
	h := o.holds[slot]
	if h == nil || h.owed > 0 || h.delayed || o.c.err != nil {
		return
	}
	slices.SortStableFunc(h.waiting, func(a, b *part) int {
		return cmp.Compare(a.req.turn, b.req.turn)
	})
	if !h.late || len(h.waiting) == 0 {
		delete(o.holds, slot)
		for _, p := range h.waiting {
			o.c.dispatch(p)
		}
		return
	}
	h.delayed = true
	o.c.after(h.waiting[0].delay(), func() {
		h.delayed = false
		o.probe(slot, h)
	})
}

// probe sends the first of what waits for a slot. The rest follows when it is answered.
func (o *slotOrder) probe(slot int, h *slotHold) {
	switch {
	case h.owed > 0:
	case len(h.waiting) == 0: // see ran
		o.settle(slot)
	default:
		first := h.waiting[0]
		h.waiting, h.late = h.waiting[1:], false
		o.c.nodes.forSlot(slot).push(first)
	}
}

// delay is how long p waits before it is sent again. It grows with p's tries.
func (p *part) delay() time.Duration {
	return min(firstDelay<<min(max(p.tries-1, 0), 10), maxDelay)
}
