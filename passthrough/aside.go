package passthrough

// Others than the session use its home, from any goroutine, while nothing is under way there. The
// session itself adds what the client is owed before it writes, so that is all to check.

import "lockproxy/internal/resp"

// KeepAlive keeps Redis from taking the client for idle (its `timeout`), by a request that each
// client may send that takes locks. A client with anything under way is not idle.
func (p *Pipe) KeepAlive() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if !p.c.canAskLocked() {
		return
	}
	if many, ok := p.c.home.Conn.(interface{ KeepAlive([]byte) }); ok { // a cluster's, to each node
		many.KeepAlive(timeRequest)
		return
	}
	p.c.asideLocked(pendingReply{kind: discarded}, timeRequest)
}

// idLocked is home.id. mu is held.
func (c *client) idLocked() int64 {
	if c.home == nil {
		return unknowable
	}
	if c.home.id == 0 {
		c.home.id = c.pending.number
	}
	return c.home.id
}

// unknowable is the number of a home that there is not, or of which Redis does not tell it.
const unknowable = -1

// LearnID asks for the home's number, unless it is known, and asked for already. known is closed
// once it is, or can not be; it is nil where there is nothing to ask for, or nothing can be asked
// now: then busy is true. inTurn says that the session asks, behind what it has asked before, and
// that Awaiting or Flush sends it.
func (p *Pipe) LearnID(inTurn bool) (known <-chan struct{}, busy bool) {
	c := &p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.home
	switch {
	case c.idLocked() != 0:
		return nil, false
	case h.asked != nil:
		return h.asked, false
	}
	asked := make(chan struct{})
	h.asked = asked
	e := pendingReply{kind: discarded, Expect: Expect{Replied: func(head resp.Head) {
		n, ok := resp.ParseInt(head.Line)
		if !ok || head.Type != ':' {
			n = unknowable
		}
		h.numberedLocked(n)
	}}}
	switch {
	case c.asideLocked(e, clientIDRequest):
	case inTurn && c.route == byHome && !c.pending.fresh && !c.needsHome.open:
		p.enqueueLocked(e, clientIDRequest, nil)
	default:
		h.asked = nil
		return nil, true
	}
	return asked, false
}

// numberedLocked notes the home's number, unless that is known. mu is held.
func (h *home) numberedLocked(n int64) {
	if h.id == 0 {
		h.id = n
	}
	if h.asked != nil {
		close(h.asked)
		h.asked = nil
	}
}

var (
	timeRequest     = resp.AppendCommand(nil, "TIME")
	clientIDRequest = resp.AppendCommand(nil, "CLIENT", "ID")
)

// asideLocked sends a request by the home, for whose reply it will be owed e. It returns false, and
// sends nothing, if anything is under way. mu is held.
func (c *client) asideLocked(e pendingReply, raw []byte) (sent bool) {
	if !c.canAskLocked() || !c.setRoute(byHome) {
		return false
	}
	c.pending.push(e)
	c.home.writeIdle(raw)
	return true
}

// canAskLocked reports whether there is a home by which nothing is under way. mu is held.
func (c *client) canAskLocked() bool {
	return c.home != nil && c.home.phase != closing && c.end == notEnding && !c.needsHome.open &&
		!c.needsHome.pinned && !c.within && !c.pending.fresh && c.pending.empty() &&
		c.pending.Plain()
}
