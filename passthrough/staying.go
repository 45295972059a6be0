package passthrough

// A client that a judge has let in has no home at first, so that Redis does not know that it is
// there. Its home is opened if it stays.

import (
	"context"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/upstream"
)

// stays is for how long a client can be connected without a home after a judge has heard it. Visits
// are over by then.
const stays = time.Second

// OpenOwn opens the home of a client that has logged in, and that has stayed without. If Redis does
// not accept its login any more, the lanes that it has let in serve the client on, as Redis would.
// Without them the client is closed. OpenOwn can be called from any goroutine, now and then.
func (p *Pipe) OpenOwn() {
	loopguard.MayWait()
	s, c := &p.homes, &p.c
	c.mu.Lock()
	setup, refused, lacks := c.pending.Setup, s.refused, s.lacksHomeLocked()
	c.mu.Unlock()
	if !lacks || !s.opens.TryLock() { // otherwise the session opens one
		return
	}
	defer s.opens.Unlock()
	var found spare
	var err error
	if !refused {
		ctx, cancel := context.WithTimeout(c.pool.ctx, c.pool.DialTimeout)
		defer cancel()
		found, err = c.pool.findHome(ctx, setup, true, false)
	}
	opened, begun := !refused && err == nil, (*home)(nil)
	c.mu.Lock()
	refused = refused || upstream.IsLoginDemand(err)
	switch {
	case !s.lacksHomeLocked() || c.pending.Setup != setup:
	case refused && !c.pool.hasLanes(loginOf(setup.Identity)):
		c.homeLostLocked(errClosedByUpstream, c.within)
	case opened && (!c.where.known || !found.server.Differs(c.where.server)):
		begun = s.beginHomeLocked(found)
	default:
		s.refused = refused
	}
	c.mu.Unlock()
	switch {
	case begun != nil:
		s.begun(begun)
	case opened:
		upstream.CloseAndWait(found.Conn)
	}
}

// lacksHomeLocked reports whether the home of a client that has logged in is to be opened. mu is
// held.
func (s *homeSide) lacksHomeLocked() bool {
	c := s.c
	return s.judgedAt != 0 && monotonic.Since(s.judgedAt) >= stays && c.end == notEnding &&
		c.route != gone && c.home == nil && c.pending.effects == 0 && c.pending.own() &&
		(s.lastHome == nil || isClosed(s.lastHome.ended))
}
