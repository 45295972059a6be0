package passthrough

// How requests go in an event loop. Each lane is written once for all sessions, at the end of the
// loop's iteration, or before anything that came later goes by a home.

import "lockproxy/internal/eventloop"

// TryRelay is Route and Relay for a caller that must not wait. Where one of them might wait or
// dial, TryRelay does nothing and returns false. TryFlush must follow.
func (p *Pipe) TryRelay(r Request, it *eventloop.Iteration) (done bool) {
	if p.failed != nil || len(r.Raw) > bufSize || !p.tryRoute(r.Way) {
		return false
	}
	e := r.entry()
	if p.lane != nil {
		return p.tryLane(e, r.Raw, it)
	}
	return p.tryHome(e, r.Raw)
}

// TryAsk is Route and Ask for a caller that must not wait. It returns nil if one of them might
// wait or dial. TryFlush must follow. w is told when the Answer has arrived.
func (p *Pipe) TryAsk(c *Call, w Waiter, it *eventloop.Iteration) *Answer {
	if p.failed != nil || !p.tryRoute(Shared) {
		return nil
	}
	a := &Answer{Done: make(chan struct{}), call: c, waiter: w}
	e := pendingReply{kind: internal, answer: a}
	if p.lane != nil && p.tryLane(e, nil, it) || p.lane == nil && p.tryHome(e, nil) {
		return a
	}
	return nil
}

// TryFlush sends what TryRelay has gathered for the home, after everything that came earlier in
// this iteration. If Redis has not taken all of it, TryFlush returns false, and Flush must send the
// rest before anything else.
func (p *Pipe) TryFlush(it *eventloop.Iteration) (all bool) {
	p.closeCalls()
	if len(p.unsent) == 0 {
		return true
	}
	it.Flush()
	return p.tryFlushHome()
}

// tryRoute is Route, or returns false if that might wait.
func (p *Pipe) tryRoute(way Way) bool {
	p.mu.Lock()
	shares, kind := p.chooseLocked(way)
	if p.home == nil && p.homeUse != unneeded || p.end != notEnding || !shares &&
		p.needsHome.large > 0 {
		p.mu.Unlock()
		return false
	}
	if shares && p.lane != nil && p.lane.key == kind {
		defer p.mu.Unlock()
		return p.setRoute(byLane)
	}
	waits := p.inFlight > 0 || shares && p.pool.Upstream.LearnsByLogin()
	p.mu.Unlock()
	if waits { // the lane must answer first, or open
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
