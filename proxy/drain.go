package proxy

import (
	"time"

	"lockproxy/passthrough"
)

// While its server shuts down, a session ends between two commands, with all that was asked
// answered. A client that sends a command when it has the answer to the last finds its connection
// closed before it sends: the last answer and the end of the connection come in one packet, see
// cork. Commands that come after that are not run.

// maxIdleDrain is how long a client that sends nothing keeps its connection while the server shuts
// down. One that sends something is closed with its answer, which is the better moment.
const maxIdleDrain = time.Second

// idleDrain is how long a shutdown waits for clients that send nothing.
func idleDrain(deadline time.Time, bounded bool) time.Duration {
	if !bounded {
		return maxIdleDrain
	}
	return min(maxIdleDrain, time.Until(deadline)/4)
}

// drain makes the session end as soon as it can; while its client sends nothing, not before idle.
// Any goroutine can call it.
func (s *session) drain(idle time.Time) {
	s.idleEnd = idle
	if s.client.setPhase(draining) == handshaking {
		s.client.SetReadDeadline(idle)
		return
	}
	s.client.interruptRead()
	s.client.reg.Wake()
}

// tryClose ends the session of a server that shuts down, if that is between two of its commands;
// asked says that requests have just been relayed. It is called with the socket corked. It
// returns true if there is something to handle, and otherwise leaves the next read to Resume.
func (s *session) tryClose(asked bool) (more bool) {
	s.client.SetReadDeadline(time.Time{})
	had := s.in.watched
	if answers := s.pipe.Barrier(); !answers.Arrived() {
		asked = true
		s.x.await(answers)
	}
	if s.in.watched != had && s.in.readErr == nil {
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
