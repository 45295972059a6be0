package passthrough

// How a session goes by its home.

import (
	"context"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
	"lockproxy/internal/resp"
)

// homeSide is the sending side of a session's home.
type homeSide struct {
	*client
	lastHome  *home       // the last one opened; nil for none
	unsent    []byte      // not yet sent
	calls     callBatch   // go behind unsent
	idleTimer *time.Timer // calls closeIdle; nil if nothing does
	greeted   bool        // see leaveFirst
}

// homeUse tells closeIdle whether the open home is in use.
type homeUse uint8

const (
	recent   homeUse = iota // used since the last closeIdle
	held                    // about to be used
	unneeded                // not used since
)

// openHome opens the home and sets it up as the client has set up the last one. A dialled one has
// not been open before.
func (s *homeSide) openHome(ctx context.Context, dialled bool) error {
	loopguard.MayWait()
	defer s.waits()()
	begun := time.Now()
	if s.lastHome != nil {
		s.out.addMustRead(1) // its reader may wait for the client
		<-s.lastHome.ended
		s.out.addMustRead(-1)
	}
	s.mu.Lock()
	setup, letIn := s.pending.setup(), s.pending.Admitted
	s.mu.Unlock()
	// The last home may have looked whether Redis answers: see closedAlone. That is part of it.
	probed := min(time.Since(begun), maxProbe, s.pool.DialTimeout/2)
	ctx, cancel := context.WithTimeout(ctx, s.pool.DialTimeout-probed)
	defer cancel()
	found, err := s.pool.findHome(ctx, setup, letIn, dialled)
	if err == nil {
		s.beginHome(found)
	}
	return err
}

// takeHome is openHome in an event loop, as far as that needs no waiting: for a client that Redis
// has let in and that has not logged in itself, if there is a spare. So its request goes to Redis in
// its turn: until a goroutine had opened the home, requests that others send later would overtake it.
func (s *homeSide) takeHome() (taken bool) {
	s.mu.Lock()
	setup := s.pending.setup()
	ready := s.pending.Admitted && setup.Identity == s.pool.Upstream.Initial &&
		(s.lastHome == nil || s.lastHome.isEnded())
	s.mu.Unlock()
	if !ready {
		return false
	}
	found, taken := s.pool.popSpare(true)
	if taken {
		s.beginHome(found)
		for _, cmd := range setup.Labels.Commands() {
			s.expect(pendingReply{kind: discarded, setsUp: true})
			s.gather(resp.AppendCommand(nil, cmd...))
		}
	}
	return taken
}

// beginHome makes a connection the client's home. It does not wait.
func (s *homeSide) beginHome(found spare) {
	h := &home{client: s.client, heardAt: found.heardAt, numbersShown: found.numbersShown}
	if found.waited {
		h.said = more // an error that comes first is no refusal of the connection
	}
	h.init(found.Conn, h, minBuf, s.pool.loops)
	s.mu.Lock()
	if s.where.known {
		s.writes = max(s.writes, Elsewhere)
		if found.server.Differs(s.where.server) || s.pool.newest.elsewhere(&s.where) {
			s.writes = Unknown
		}
	}
	s.home, s.lastHome, s.homeUse = h, h, held
	if found.doubt != 0 {
		s.doubt.Store(uint64(found.doubt))
	}
	s.pending.Admitted = s.pending.Admitted || s.pending.LoggedIn // Redis has accepted that
	s.where = whereabouts{server: found.server, known: true, term: found.term}
	if s.end >= ClientGone {
		found.Close()
	}
	switch every := s.pool.homeIdle(); {
	case every == 0:
	case s.idleTimer == nil:
		s.idleTimer = time.AfterFunc(every, s.closeIdle) // Wait stops it
	default:
		s.idleTimer.Reset(every)
	}
	s.mu.Unlock()
	s.pool.homes.open.Add(1)
	s.pool.homes.opened.Add(1)
	h.start() // until conn ends: End closes conn, and Wait waits
	s.pool.lookForOwn(s.pool.Upstream.Initial)
}

// useHome sets the route to the home and reports whether it is open. If the home was lost after
// Route, requests that were gathered for it have been answered, and are dropped.
func (s *homeSide) useHome() (open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.route == dropped {
		s.unsent = putBuffer(s.unsent)
		s.calls.drop()
	}
	s.setRoute(byHome)
	if s.home != nil {
		s.homeUse = held
	}
	return s.home != nil
}

// queue gathers a request for the home. A large one is sent at once, uncopied, behind what is
// gathered; an event loop gathers all, so that a pipeline goes in one piece.
func (s *homeSide) queue(raw []byte, it *eventloop.Iteration) {
	if it != nil || len(raw) < newBuffer {
		s.gather(raw)
	} else {
		s.flushHome(nil)
		s.writeHome(raw, nil)
	}
	if it == nil && len(s.unsent) >= bufSize {
		s.flushHome(nil)
	}
}

// gather puts raw behind what is not yet sent.
func (s *homeSide) gather(raw []byte) {
	s.closeCalls()
	s.unsent = append(getBuffer(s.unsent), raw...)
}

// queueCall gathers a call for the home.
func (s *homeSide) queueCall(a *Answer) {
	if s.calls.has(a.call) {
		s.closeCalls()
	}
	if s.calls.add(a, s.pool.BatchScript) {
		s.closeCalls()
	}
}

// closeCalls puts the gathered calls behind what is not yet sent. What is gathered next goes behind
// them.
func (s *homeSide) closeCalls() {
	if len(s.calls.list) == 0 {
		return
	}
	if n := len(s.calls.list); n > 1 {
		s.mu.Lock()
		s.calls.list[0].calls = n
		s.mu.Unlock()
	}
	s.unsent = s.calls.drain(getBuffer(s.unsent), s.pool.BatchScript)
}

// flushHome sends what is gathered. In an event loop it sends as much as Redis takes at once, and
// reports false if there is a rest.
func (s *homeSide) flushHome(it *eventloop.Iteration) (all bool) {
	s.closeCalls()
	if len(s.unsent) == 0 {
		return true
	}
	if n := s.writeHome(s.unsent, it); n < len(s.unsent) {
		s.unsent = s.unsent[:copy(s.unsent, s.unsent[n:])]
		s.mu.Lock()
		s.homeUse = held
		s.mu.Unlock()
		return false
	}
	s.unsent = putBuffer(s.unsent)
	return true
}

// homeInUse returns the home; nil if it was lost, and the requests for it have been answered.
func (s *homeSide) homeInUse() *home {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.route != byHome {
		return nil
	}
	return s.home
}

// sendsAtOnce reports whether an event loop can send by the home.
func (s *homeSide) sendsAtOnce() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.home != nil && s.home.writesAtOnce() && s.route == byHome && !s.needsHome.open
}

// writeHome sends raw by the home, or drops it if that is not there any more. In an event loop it
// sends as much as Redis takes at once, and returns how much that was.
func (s *homeSide) writeHome(raw []byte, it *eventloop.Iteration) (sent int) {
	home := s.homeInUse()
	if home == nil {
		return len(raw)
	}
	var err error
	if it != nil {
		sent, err = home.tryWrite(raw)
	} else {
		loopguard.MayWait()
		s.out.addMustRead(1) // Redis might not read on before its replies are read
		sent, err = home.rw.Write(raw)
		s.out.addMustRead(-1)
	}
	if err != nil {
		home.writeFailed(err) // the reader reports the loss
		return len(raw)
	}
	return sent
}

const (
	// calmHomes is how many homes there can be before they are kept for less long.
	calmHomes = 8
	// shortIdle is HomeIdle while there are more: thousands of clients that need a home once, when
	// they connect, do not have one each.
	shortIdle = time.Second
)

// homeIdle is after how long without a request a home is closed now; 0 for never.
func (p *Pool) homeIdle() time.Duration {
	if p.homes.open.Load() > calmHomes {
		return min(p.HomeIdle, shortIdle)
	}
	return p.HomeIdle
}

// leaveFirst says that a client has asked for what could go by a lane, and whether it did. One that
// has needed its first home to say what libraries say when they connect does not keep it until it
// is idle, if there are many: thousands that connect at once would have one each.
func (s *homeSide) leaveFirst(byLane bool) {
	if s.greeted || s.lastHome == nil {
		return
	}
	s.greeted = true
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.home == nil || s.idleTimer == nil || !s.pending.replaceable() ||
		s.pool.homes.open.Load() <= calmHomes {
		return
	}
	s.home.leaveTimer = s.idleTimer
	if byLane {
		s.homeUse = recent // nothing of it is under way
		s.home.leaveLocked()
	}
}

// closeIdle closes the home if it was not used since the last call.
func (s *homeSide) closeIdle() {
	var err error
	defer func() {
		if fault := panics.In(err); fault != nil {
			s.breakOff(fault)
		}
	}()
	defer panics.Contain(&err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end >= ClientGone || s.route == gone {
		return
	}
	busy := s.needsHome.any() || s.route != byLane && !s.pending.empty() ||
		!s.pending.replaceable() || s.pending.fresh // see Pipe.logInAgain
	if s.home != nil && !s.pending.own() && !s.pending.replaceable() && s.mustLogIn() {
		s.closeLocked(ErrClosed) // it may never ask for anything again, as a subscriber
		return
	}
	switch {
	case s.home == nil:
	case s.homeUse == recent:
		s.homeUse = unneeded
	case s.homeUse == unneeded && !busy && !s.releaseHomeLocked():
		s.home.close()
		s.home = nil
	}
	if s.home != nil {
		s.idleTimer.Reset(s.pool.homeIdle())
	}
}

// closeHomeLocked closes the sending side of the home. mu is held.
func (c *client) closeHomeLocked() {
	if c.home == nil || c.home.closing {
		return
	}
	c.home.closing = true // a second close could fail while replies are left to read
	c.home.conn.SetReadDeadline(time.Now().Add(Linger))
	if half, ok := c.home.conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		c.home.conn.Close()
	}
	c.home.reg.Wake() // a goroutine must read it: the loop knows no deadline
}
