package passthrough

// A session goes by its home.

import (
	"context"
	"errors"
	"sync"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// homeSide is the sending side of a session's home.
type homeSide struct {
	c         *client
	lastHome  *home       // the last one opened; nil for none
	unsent    []byte      // not yet sent
	calls     callBatch   // go behind unsent
	idleTimer *time.Timer // calls closeIdle; nil if nothing does
	opens     sync.Mutex  // held while a home is opened, by the session or by OpenOwn
	judgedAt  int64       // when a judge took its login, as monotonic.Now; 0 once it has a home
	refused   bool        // Redis does not accept the client's login any more
}

// openHome opens the home for a request, and sets it up as the client has set up the last one. If
// Redis does not accept the client's login any more, a request that replaces the login can do so
// nevertheless.
func (s *homeSide) openHome(ctx context.Context, r *Request) error {
	loopguard.MayWait()
	begun := time.Now()
	s.opens.Lock()
	defer s.opens.Unlock()
	if s.useHome() { // OpenOwn has opened it
		return nil
	}
	if s.lastHome != nil {
		s.c.out.addMustRead(1) // its reader may wait for the client
		<-s.lastHome.ended
		s.c.out.addMustRead(-1)
	}
	s.c.mu.Lock()
	setup, letIn := s.c.pending.Setup, s.c.pending.Admitted
	s.c.mu.Unlock()
	// The last home may have looked whether Redis answers: see closedAlone. This time counts too.
	probed := min(time.Since(begun), maxProbe, s.c.pool.DialTimeout/2)
	ctx, cancel := context.WithTimeout(ctx, s.c.pool.DialTimeout-probed)
	defer cancel()
	found, err := s.c.pool.findHome(ctx, setup, letIn, r.Way == NewHome)
	if next := r.after(setup.Identity); upstream.IsLoginDemand(err) &&
		loginOf(next) != loginOf(setup.Identity) {
		setup.Identity = next
		found, err = s.c.pool.findHome(ctx, setup, true, r.Way == NewHome)
		if refused, ok := errors.AsType[*upstream.Refused](err); ok && upstream.IsLoginDemand(err) {
			err = LoginError{refused}
		}
	}
	if err == nil {
		s.beginHome(found)
	}
	return err
}

// LoginError is Redis's refusal of a login that the client has sent.
type LoginError struct{ *upstream.Refused }

// takeHome is openHome in an event loop, as far as that needs no waiting: for a client that Redis
// has let in and that has not logged in itself, if there is a spare. So its request goes to Redis in
// its turn: until a goroutine had opened the home, requests that others send later would overtake it.
func (s *homeSide) takeHome() (taken bool) {
	s.c.mu.Lock()
	setup := s.c.pending.Setup
	ready := s.c.pending.Admitted && setup.Identity == s.c.pool.Upstream.Initial &&
		(s.lastHome == nil || isClosed(s.lastHome.ended))
	s.c.mu.Unlock()
	if !ready {
		return false
	}
	found, taken := s.c.pool.popSpare(true)
	if taken {
		s.beginHome(found)
		s.c.mu.Lock()
		defer s.c.mu.Unlock()
		for _, cmd := range setup.Labels.Commands() {
			s.c.expectLocked(pendingReply{kind: discarded, setsUp: true})
			s.gatherLocked(resp.AppendCommand(nil, cmd...))
		}
	}
	return taken
}

// beginHome makes a connection the client's home. It does not wait.
func (s *homeSide) beginHome(found spare) {
	s.c.mu.Lock()
	h := s.beginHomeLocked(found)
	s.c.mu.Unlock()
	s.begun(h)
}

// beginHomeLocked is beginHome with mu held. begun must be called once it is not.
func (s *homeSide) beginHomeLocked(found spare) *home {
	h := &home{c: s.c, phase: held, heardAt: found.heardAt, given: found}
	if found.waited {
		h.said = more // an error that comes first is no refusal of the connection
	}
	h.init(found.Conn, h, minBuf, s.c.pool.loops)
	if s.c.where.known {
		s.c.writes = max(s.c.writes, Elsewhere)
		if found.server.Differs(s.c.where.server) || s.c.pool.newest.elsewhere(&s.c.where) {
			s.c.writes = Unknown
		}
	}
	s.c.home, s.lastHome, s.judgedAt = h, h, 0
	s.c.pending.set(spent, false) // it was about the one before
	if found.doubt != 0 {
		s.c.doubt.Store(uint64(found.doubt))
	}
	s.c.pending.Admitted = s.c.pending.Admitted || s.c.pending.LoggedIn // Redis has accepted that
	s.c.where = whereabouts{server: found.server, known: true, term: found.term}
	if s.c.end >= ClientGone {
		found.Close()
	}
	switch every := s.c.pool.homeIdle(); {
	case every == 0:
	case s.idleTimer == nil:
		s.idleTimer = time.AfterFunc(every, s.closeIdle) // Wait stops it
	default:
		s.idleTimer.Reset(every)
	}
	return h
}

// begun begins to read a home.
func (s *homeSide) begun(h *home) {
	s.c.pool.homes.open.Add(1)
	s.c.pool.homes.opened.Add(1)
	h.start() // until conn ends: End closes conn, and Wait waits
	s.c.pool.lookForOwn(s.c.pool.Upstream.Initial)
}

// useHome sets the route to the home and reports whether it is open.
func (s *homeSide) useHome() (open bool) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	s.useHomeLocked()
	return s.c.home != nil
}

// useHomeLocked sets the route to the home. If that was lost after Route, requests that were gathered
// for it have been answered, and are dropped. mu is held.
func (s *homeSide) useHomeLocked() {
	if s.c.route == dropped {
		s.unsent = putBuffer(s.unsent)
		s.calls.drop()
	}
	s.c.setRoute(byHome)
	s.c.home.becomes(held)
}

// queueLocked gathers a request for the home. A large one is sent at once, uncopied, behind what is
// gathered; an event loop gathers all, so that a pipeline goes in one piece. mu is held, but not
// while it waits.
func (s *homeSide) queueLocked(raw []byte, it *eventloop.Iteration) {
	if it != nil || len(raw) < newBuffer {
		s.gatherLocked(raw)
	} else {
		s.flushLocked(nil)
		s.writeLocked(raw, nil)
	}
	if it == nil && len(s.unsent) >= bufSize {
		s.flushLocked(nil)
	}
}

// gatherLocked puts raw behind what is not yet sent. mu is held.
func (s *homeSide) gatherLocked(raw []byte) {
	s.closeCallsLocked()
	s.unsent = append(getBuffer(s.unsent), raw...)
}

// queueCallLocked gathers a call for the home. mu is held.
func (s *homeSide) queueCallLocked(a *Answer) {
	if s.calls.has(a.call) {
		s.closeCallsLocked()
	}
	if s.calls.add(a, s.c.pool.BatchScript) {
		s.closeCallsLocked()
	}
}

// closeCallsLocked puts the gathered calls behind what is not yet sent. Calls that are gathered
// next go behind them. mu is held.
func (s *homeSide) closeCallsLocked() {
	if n := len(s.calls.list); n > 1 {
		s.calls.list[0].calls = n
	} else if n == 0 {
		return
	}
	s.unsent = s.calls.drain(getBuffer(s.unsent), s.c.pool.BatchScript)
}

// flushLocked sends what is gathered. In an event loop it sends as much as Redis takes at once, and
// reports false if there is a rest. mu is held, but not while it writes.
func (s *homeSide) flushLocked(it *eventloop.Iteration) (all bool) {
	s.closeCallsLocked()
	if len(s.unsent) == 0 {
		return true
	}
	if n := s.writeLocked(s.unsent, it); n < len(s.unsent) {
		s.unsent = s.unsent[:copy(s.unsent, s.unsent[n:])]
		s.c.home.becomes(held)
		return false
	}
	s.unsent = putBuffer(s.unsent)
	return true
}

// writeLocked sends raw by the home. If that was lost, the requests for it have been answered, and
// raw is dropped. In an event loop it sends as much as Redis takes at once, and returns how much that
// was. mu is held, but not while it writes.
func (s *homeSide) writeLocked(raw []byte, it *eventloop.Iteration) (sent int) {
	home := s.c.home
	if s.c.route != byHome || home == nil {
		return len(raw)
	}
	s.c.mu.Unlock()
	defer s.c.mu.Lock()
	var err error
	if it != nil {
		sent, err = home.tryWrite(raw)
	} else {
		loopguard.MayWait()
		s.c.out.addMustRead(1) // Redis might not read on before its replies are read
		sent, err = home.rw.Write(raw)
		s.c.out.addMustRead(-1)
	}
	if err != nil {
		home.writeFailed(err) // the reader reports the loss
		return len(raw)
	}
	return sent
}

const (
	// calmHomes is how many homes there can be before they are kept for less long, and before
	// clients that have none greet without.
	calmHomes = 8
	// shortIdle is HomeIdle while there are more: thousands of clients that need a home once do not
	// have one each.
	shortIdle = time.Second
)

// homeIdle is after how long without a request a home is closed now; 0 for never.
func (p *Pool) homeIdle() time.Duration {
	if p.homes.open.Load() > calmHomes {
		return min(p.HomeIdle, shortIdle)
	}
	return p.HomeIdle
}

// closeIdle closes the home if it was not used since the last call.
func (s *homeSide) closeIdle() {
	var err error
	defer func() {
		if fault := panics.In(err); fault != nil {
			s.c.breakOff(fault)
		}
	}()
	defer panics.Contain(&err)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if s.c.end >= ClientGone || s.c.route == gone {
		return
	}
	busy := s.c.needsHome.any() || s.c.route != byLane && !s.c.pending.empty() ||
		!s.c.pending.replaceable() || s.c.pending.fresh // see Pipe.logInAgain
	if s.c.home != nil && !s.c.pending.own() && !s.c.pending.replaceable() && s.c.mustLogIn() {
		s.c.closeLocked(ErrClosed) // it may never ask for anything again, as a subscriber
		return
	}
	switch {
	case s.c.home == nil:
	case s.c.home.phase == recent:
		s.c.home.becomes(unneeded)
	case s.c.home.phase == unneeded && !busy && !s.c.releaseHomeLocked():
		s.c.home.Close()
		s.c.home = nil
	}
	if s.c.home != nil {
		s.idleTimer.Reset(s.c.pool.homeIdle())
	}
}
