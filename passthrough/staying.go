package passthrough

// How a client that a judge has let in gets its home. As long as it has none, Redis does not know that
// it is there.

import (
	"context"
	"time"

	"lockproxy/internal/upstream"
)

// stays is for how long a client that has logged in can be connected without a home. Visits are over by
// then. Redis goes on to serve those that it has let in when their password changes, and closes them
// when their user is deleted.
const stays = time.Second

// openSoonLocked has the home opened of a client that stays. mu is held.
func (s *homeSide) openSoonLocked() {
	if s.staying == nil {
		s.staying = time.AfterFunc(stays, s.openOwn) // stopOpeningLocked stops it
	} else {
		s.staying.Reset(stays)
	}
}

// stopOpeningLocked ends openOwn soon, for a client that ends. mu is held.
func (s *homeSide) stopOpeningLocked() {
	if s.staying != nil {
		s.staying.Stop()
	}
	if s.stop != nil {
		s.stop()
	}
}

// openingEnded records that a home is not being opened any more.
func (s *homeSide) openingEnded() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.c.opening = false
	s.c.room.Broadcast()
}

// openOwn opens the home of a client that has logged in, if it has none and stays. If Redis does not
// accept the login any more, it closes the client.
func (s *homeSide) openOwn() {
	c := s.c
	c.mu.Lock()
	settled := c.pending.effects == 0
	if !s.lacksHomeLocked() || settled && !c.pending.own() {
		c.mu.Unlock()
		return
	}
	if c.opening || !settled {
		s.openSoonLocked()
		c.mu.Unlock()
		return
	}
	setup := c.pending.Setup
	ctx, stop := context.WithTimeout(c.pool.ctx, c.pool.DialTimeout)
	c.opening, s.stop = true, stop
	c.mu.Unlock()
	defer s.openingEnded()
	defer stop()
	found, err := c.pool.findHome(ctx, setup, true, false)
	var h *home
	if err == nil {
		h = s.newHome(found)
	}
	begins := false
	c.mu.Lock()
	switch {
	case !s.lacksHomeLocked():
	case err == nil && c.pending.effects == 0 && c.pending.Setup == setup:
		begins = true
		s.beginHomeLocked(h)
	case c.pool.refusesOwn(setup, err) && c.pending.empty():
		c.closeLocked(ErrClosed)
	default:
		s.openSoonLocked()
	}
	c.mu.Unlock()
	switch {
	case begins:
		s.begun(h)
	case h != nil:
		upstream.CloseAndWait(found.Conn)
	}
}

// lacksHomeLocked reports whether the client has no home and goes on. mu is held.
func (s *homeSide) lacksHomeLocked() bool {
	return s.c.home == nil && s.c.end == notEnding && s.c.route != gone
}
