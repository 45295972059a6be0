package passthrough

// How requests go by an event loop: what the sessions that the loop reads ask by a lane is sent
// once for all of them, when the loop's iteration ends or something that came later must go by a home.

import "lockproxy/internal/eventloop"

// TryRelay is Connect and Relay for a caller that may not wait. Where one of these might have to
// wait, or would open a connection, it does nothing and returns false. TryFlush must follow.
func (p *Pipe) TryRelay(r Request, it *eventloop.Iteration) (done bool) {
	if p.failed != nil || len(r.Raw) > bufSize || !p.tryConnect(r.Way) {
		return false
	}
	e := pendingReply{Expect: r.Expect, count: r.N}
	if p.lane != nil {
		return p.tryLane(e, r.Raw, it)
	}
	return p.tryHome(e, r.Raw)
}

// TryFlush sends what TryRelay has gathered for the home, behind all that came before in this
// iteration. It returns false if the upstream has not taken all: then Flush must send the rest before anything else.
func (p *Pipe) TryFlush(it *eventloop.Iteration) (all bool) {
	if len(p.unsent) == 0 {
		return true
	}
	it.Flush()
	return p.tryFlushHome()
}

// tryConnect is Connect where that need not wait. A lane is used only then.
func (p *Pipe) tryConnect(way Way) bool {
	p.mu.Lock()
	shares, kind := p.chooseLocked(way)
	if p.home == nil && p.homeUse != unneeded || p.end != notEnding || !shares && p.needsHome.large > 0 {
		p.mu.Unlock()
		return false
	}
	if shares && p.lane != nil && p.lane.key == kind {
		defer p.mu.Unlock()
		return p.setRoute(byLane)
	}
	waits := p.inFlight > 0
	p.mu.Unlock()
	if waits { // what was asked by the lane must be answered first
		return false
	}
	p.leaveLane()
	if shares {
		p.join(kind)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lane != nil {
		return p.setRoute(byLane)
	}
	return p.setRoute(byHome)
}
