package passthrough

// How a client that a judge has let in gets its home. As long as it has none, Redis does not know that
// it is there.

import (
	"context"
	"maps"
	"slices"
	"time"

	"lockproxy/internal/upstream"
)

// stays is for how long a client that has logged in can be connected without a home. Visits are over by
// then.
const stays = time.Second

// openSoonLocked has the home opened of a client that stays. mu is held.
func (s *homeSide) openSoonLocked() {
	if s.staying == nil {
		s.staying = time.AfterFunc(stays, s.openOwn) // stopOpeningLocked stops it
	} else {
		s.staying.Reset(stays)
	}
	s.c.pool.noteHomeless(s.c, true)
}

// stopOpeningLocked ends openOwn soon, for a client that ends. mu is held.
func (s *homeSide) stopOpeningLocked() {
	if s.staying != nil {
		s.staying.Stop()
		s.c.pool.noteHomeless(s.c, false)
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
// accept the login any more, the lanes that it has let in serve the client on, as Redis would. Without
// them the client is closed.
func (s *homeSide) openOwn() {
	c := s.c
	c.mu.Lock()
	settled := c.pending.effects == 0
	if c.end != notEnding || c.route == gone || c.home != nil || settled && !c.pending.own() {
		c.pool.noteHomeless(c, false)
		c.mu.Unlock()
		return
	}
	if c.opening || !settled || s.lastHome != nil && !s.lastHome.isEnded() {
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
	c.mu.Lock()
	var h *home
	switch {
	case c.end != notEnding || c.route == gone:
	case err == nil && c.pending.effects == 0 && c.pending.Setup == setup:
		h = s.beginHomeLocked(found)
		c.pool.noteHomeless(c, false)
	case !c.pool.refusesOwn(setup, err):
		s.openSoonLocked()
	case !c.pool.hasLanes(loginOf(setup.Identity)):
		c.homeLostLocked(err, c.within)
	}
	c.mu.Unlock()
	switch {
	case h != nil:
		s.begun(h)
	case err == nil:
		upstream.CloseAndWait(found.Conn)
	}
}

// noteHomeless notes whether a client that has logged in may have no home.
func (p *Pool) noteHomeless(c *client, is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is {
		p.homeless[c] = struct{}{}
	} else {
		delete(p.homeless, c)
	}
}

// endHomeless follows the end of a lane that the pool has not closed. What ends it, as the end of its
// user does, would end the homes of clients with its login too: those that have none yet are closed.
func (p *Pool) endHomeless(as login, err error) {
	p.mu.Lock()
	homeless := slices.Collect(maps.Keys(p.homeless))
	p.mu.Unlock()
	for _, c := range homeless {
		c.mu.Lock()
		if c.home == nil && c.pending.own() && loginOf(c.pending.Identity) == as {
			c.homeLostLocked(err, c.within)
		}
		c.mu.Unlock()
	}
}
