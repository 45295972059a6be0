package passthrough

// How a session gets a connection that was logged in before, when the upstream doesn't let it in again: from the reserve, from a lane that nobody
// uses, or in its turn, once somebody leaves one.

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"
)

// halfClosed is how much longer a session stays in line whose client has closed: it may have closed only its sending side.
const halfClosed = 250 * time.Millisecond

// obtain returns a connection that is set up so, for sessions that have been let in. If the upstream doesn't let them in again it is one that
// was logged in before, for which they may have to wait, as long as ctx lasts. isNew says that it has been opened, and has no Labels yet.
// p is the session whose own it will be, which counts among those who own one already; nil if it will be a lane's.
func (ls *Lanes) obtain(ctx context.Context, setup Setup, p *Pipe) (conn net.Conn, isNew bool, err error) {
	if ls.refusedLately(setup.Identity) {
		if conn := ls.takeReserve(ctx, setup); conn != nil {
			return conn, false, nil
		}
	}
	conn, err = ls.connect(ctx, setup.Identity)
	var refused *Refused
	if !errors.As(err, &refused) {
		ls.accepted(setup.Identity, err)
		return conn, true, err
	}
	ls.refused(setup.Identity)
	if conn := ls.awaitReserve(ctx, setup, p); conn != nil {
		return conn, false, nil
	}
	return nil, true, err
}

func (ls *Lanes) refusedLately(id Identity) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g := ls.groups[loginOf(id)]
	return g != nil && time.Since(g.failed) < refusalPause
}

func (ls *Lanes) refused(id Identity) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if g := ls.groups[loginOf(id)]; g != nil {
		g.failed, g.stale = time.Now(), true
	}
}

// accepted takes note of an attempt that wasn't refused.
func (ls *Lanes) accepted(id Identity, err error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if g := ls.groups[loginOf(id)]; g != nil && err == nil {
		g.stale = false
	}
}

// takeReserve returns a connection of setup's login, which it sets up so, or nil if there is none: also a lane's that nobody uses.
func (ls *Lanes) takeReserve(ctx context.Context, setup Setup) net.Conn {
	for ctx.Err() == nil {
		s := ls.pick(setup.Identity, func(*spare) bool { return true })
		if s == nil {
			s = ls.reclaim(setup.Identity)
		}
		if s == nil {
			return nil
		}
		if s.release() && move(ctx, s, setup) {
			return s.conn
		}
	}
	return nil
}

// awaitReserve does as takeReserve, but waits in line if there is none now, unless nobody can leave one.
func (ls *Lanes) awaitReserve(ctx context.Context, setup Setup, p *Pipe) net.Conn {
	for ctx.Err() == nil {
		if conn := ls.takeReserve(ctx, setup); conn != nil {
			return conn
		}
		s, waited := ls.standInLine(ctx, setup.Identity, p)
		if !waited {
			return nil
		}
		if s != nil && s.release() && move(ctx, s, setup) {
			return s.conn
		}
	}
	return nil
}

// standInLine waits until ctx ends for the next spare of a login, or with s nil for the word to look again. It doesn't wait if
// there is nobody who could leave one.
func (ls *Lanes) standInLine(ctx context.Context, id Identity, p *Pipe) (s *spare, waited bool) {
	place := make(chan *spare, 1)
	pinning := 0 // those who own a connection and are still without
	var gone <-chan struct{}
	if p != nil {
		pinning = 1
	}
	ls.mu.Lock()
	g := ls.groups[loginOf(id)]
	if ls.reserve == 0 || g == nil || g.owned <= pinning && g.lanes == 0 {
		ls.mu.Unlock()
		return nil, false
	}
	g.line = append(g.line, place)
	ls.mu.Unlock()
	if p != nil && p.watch != nil {
		watched, stop := p.watch()
		defer stop()
		gone = watched
	}
	select {
	case s := <-place:
		return s, true
	case <-ctx.Done():
	case <-gone:
		select {
		case s := <-place:
			return s, true
		case <-ctx.Done():
		case <-time.After(halfClosed):
		}
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	g.line = slices.DeleteFunc(g.line, func(other chan *spare) bool { return other == place })
	select {
	case s := <-place: // it came at the same moment
		if s != nil {
			ls.keepLocked(g, s.conn, s.setup)
		}
	default:
	}
	ls.dropLocked(g)
	return nil, false
}

// serveLocked gives the first in line a spare, or with nil the word to look again. Lanes.mu is held.
func (g *group) serveLocked(s *spare) {
	g.line[0] <- s // there is room for one, and nobody gives another
	g.line = g.line[1:]
}

// reclaim takes the connection of a lane of this login that nobody uses, or returns nil.
func (ls *Lanes) reclaim(id Identity) *spare {
	ls.mu.Lock()
	var found *lane
	for kind, set := range ls.sets {
		for _, l := range set.lanes {
			if loginOf(kind.Identity) == loginOf(id) && l.users == 0 && !l.retired.Load() {
				found = l
			}
		}
	}
	if found != nil {
		found.retired.Store(true)
		found.unwanted = true
	}
	ls.mu.Unlock()
	if found == nil || !found.surrender() {
		return nil
	}
	return &spare{conn: found.conn, setup: Setup{Identity: found.kind.Identity}}
}
