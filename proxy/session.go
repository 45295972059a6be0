package proxy

import (
	"context"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
	"lockproxy/passthrough"
)

// session serves one client. Its goroutine, or an event loop while it is parked, reads the client,
// frames requests and dispatches them. Of its parts each knows only those before it.
type session struct {
	common
	in       input
	x        exchange
	locks    locker
	requests dispatcher
	cancel   context.CancelFunc // ends exchange.ctx
	idleEnd  time.Time          // set before the phase is draining: when an idle client is closed
	broken   error              // a panic in one of its requests; it ends, and runs nothing further
}

// serve serves a client once its handshake is done.
func (s *session) serve() {
	switch {
	case !s.handshaken():
		if s.broken != nil {
			s.server.panicked(s.client.holder.Addr, panics.In(s.broken))
		}
		s.cancel()
		s.server.ended(s)
	case !s.begin():
		s.Resume()
	}
}

// handshaken does the client's handshake, and reports whether the client can be served.
func (s *session) handshaken() (ok bool) {
	defer panics.Contain(&s.broken)
	return s.server.handshake(s.x.ctx, s.client)
}

// begin begins to serve the client. It returns false if the session is not parked.
func (s *session) begin() (parked bool) {
	defer panics.Contain(&s.broken)
	if s.client.setPhase(serving) == draining {
		s.client.SetReadDeadline(s.idleEnd)
	}
	s.in.buf, s.in.socketEmpty = make([]byte, minSessionBuf), true
	if s.client.wrapped() {
		s.client.reg.Unseen() // TLS can hold what came behind the handshake
	}
	// The loop knows the client before: a request that arrives meanwhile goes ahead of what others
	// ask later.
	s.client.reg.Register()
	s.pipe.Enter(s.x.ctx)
	return s.park()
}

// park leaves the client to the event loop. It returns false if the goroutine must read on: no loop
// can read the client, or something has come that needs the goroutine.
func (s *session) park() bool {
	return s.in.socketEmpty && !s.requests.streaming && !s.client.drains() && s.client.reg.Park()
}

// Resume serves the client until it or the proxy ends the session, or the session is parked.
func (s *session) Resume() {
	if s.broken == nil && s.run() {
		return
	}
	if s.broken != nil {
		s.breakOff()
	}
	s.finish()
	s.in.reserve(0)
	s.server.blocked.gone(&s.common)
	s.cancel()
	s.server.ended(s)
}

// run serves the client until nothing more is read from it, or the session is parked.
func (s *session) run() (parked bool) {
	defer panics.Contain(&s.broken)
	for s.broken == nil && (s.in.readErr == nil || s.in.unhandled) {
		if !s.in.unhandled {
			s.in.read()
		}
		s.in.unhandled = false
		for more := true; more; {
			asked := s.in.end > s.in.start || s.requests.batch.requests > 0 ||
				len(s.locks.begun) > 0
			s.client.corkIfDraining()
			if !s.requests.handle() {
				s.linger()
			}
			more = s.client.is(corked) && s.in.readErr == nil && len(s.locks.begun) == 0 &&
				s.tryClose(asked)
		}
		s.in.unhandled = len(s.locks.begun) > 0
		if !s.in.unhandled && s.pipe.Lost() { // the only check: a lost Pipe needs no input
			s.linger()
		}
		had, awaits := s.in.news, s.in.unhandled && !s.locks.begun.asleep()
		if s.in.readErr == nil && !awaits && s.park() {
			return true
		}
		// park can have read more, and taken the commands on.
		if s.in.news == had && len(s.locks.begun) > 0 && !s.locks.begun.stuck() {
			s.locks.await()
		}
	}
	return false
}

// tryClose ends the session of a server that shuts down, if that is between two of its commands;
// asked says that requests have just been relayed. It is called with the socket corked. It
// returns true if there is something to handle, and otherwise leaves the next read to Resume.
func (s *session) tryClose(asked bool) (more bool) {
	s.client.SetReadDeadline(time.Time{})
	had := s.in.news
	if answers := s.pipe.Barrier(); !answers.Arrived() {
		asked = true
		s.x.await(answers)
	}
	if s.in.news != had && s.in.readErr == nil {
		return true
	}
	if s.in.readErr != nil {
		return false
	}
	next := s.idleEnd
	leaseEnd, holds := s.client.holder.Holds()
	switch {
	case !s.atCommandBoundary():
		next = time.Time{} // until the server's patience ends
	case holds:
		// The end of the connection would release a session lock. A lock that only this connection
		// can release, without a token, would stay until its lease ends.
		next = leaseEnd
	case s.in.hasUnread():
		return s.in.end > s.in.start
	case asked || !time.Now().Before(s.idleEnd):
		s.client.setPhase(drained)
		s.client.SetReadDeadline(time.Now().Add(lingerTimeout))
		s.linger()
		return false
	}
	s.client.uncork()
	s.client.SetReadDeadline(next)
	return false
}

// atCommandBoundary reports whether the session is between two commands, and not in a transaction.
func (s *session) atCommandBoundary() bool {
	state, _ := s.pipe.State()
	return s.in.start == s.in.end && !s.requests.streaming &&
		!state.Has(passthrough.InMulti|passthrough.Watching)
}

// breakOff disconnects a client in one of whose requests the proxy has panicked. Locks that it was
// about to take are finished, so that finish releases them. Another panic ends the process.
func (s *session) breakOff() {
	loopguard.MayWait()
	s.server.panicked(s.client.holder.Addr, panics.In(s.broken))
	s.pipe.AwaitFree(panics.In(s.broken))
	s.kill()
	if s.in.readErr == nil {
		s.in.readErr = s.broken
		s.in.ended()
	}
	for s.locks.advance(nil); len(s.locks.begun) > 0; s.locks.advance(nil) {
		s.locks.await()
	}
}

// linger ends the session. The client is sent the end of the connection behind all that it is owed.
// Its further requests are read for a while, until it closes too: otherwise the kernel would throw
// away replies on their way.
func (s *session) linger() {
	s.client.lingering.Store(true)
	s.pipe.End(passthrough.WhenAnswered)
	for s.in.readErr == nil {
		n, err := s.client.Read(s.in.buf)
		if n > 0 && s.client.is(drained) {
			s.server.counters.tooLate.Add(1)
		}
		if isTimeout(err) && !s.client.ends() { // drain has interrupted it
			s.client.SetReadDeadline(time.Time{})
			if s.client.ends() {
				s.client.SetReadDeadline(time.Now().Add(lingerTimeout))
			}
			continue
		}
		s.in.readErr = err
	}
}

// finish gives the client what it is still owed, and closes its connections. Nothing more is read
// from it.
func (s *session) finish() {
	loopguard.MayWait()
	s.x.waker.stop()
	s.in.ended()
	ended, acked := s.in.readEnded, s.x.acknowledged() // while the kernel knows
	if s.client.is(drained) {
		s.pipe.End(passthrough.AtOnce)
	} else {
		s.pipe.End(passthrough.ClientGone)
	}
	// Work at one node of the upstream waits for no other, whose connections may linger.
	s.pipe.Settle()
	s.x.markUnread(ended, acked)
	s.server.locks.Gone(&s.client.holder)
	s.pipe.Wait()
	s.client.reg.Unregister()
	s.x.markUnread(ended, acked) // what was written since; then Gone again
	s.client.Conn.Close()
}

// kill ends the session at once.
func (s *session) kill() {
	s.cancel()
	s.pipe.End(passthrough.AtOnce)
	s.client.closeRaw()
}

// ended releases what a session holds, once its client is disconnected.
func (s *Server) ended(sess *session) {
	c := sess.client
	c.guard.Stop()
	c.raw.Close()
	s.locks.Gone(&c.holder)
	c.publish()
	s.remove(sess, func() { c.addTo(&s.counters.ended) })
}
