package proxy

// While a session is parked an event loop reads its client, and relays in place the requests that
// need no waiting, until something comes that is for the session's goroutine.

import (
	"syscall"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/panics"
)

// Ready reads what has arrived, finishes the lock commands that have been answered, and relays. It
// leaves to the goroutine what must wait. It reads first: the goroutine handles what has been read,
// and may park before it reads more.
func (s *session) Ready(it *eventloop.Iteration, arrived bool) (next eventloop.Next) {
	next = eventloop.Leave // after a panic
	defer panics.Contain(&s.broken)
	if s.client.drains() {
		return eventloop.Leave
	}
	if arrived && !s.tryRead() {
		s.in.unhandled = true
		return eventloop.Leave
	}
	if len(s.locks.begun) > 0 {
		s.locks.advance(it)
		switch {
		case s.locks.begun.asleep():
			return eventloop.Stay
		case s.locks.begun.stuck(), s.pipe.Lost():
			return eventloop.Leave
		}
	}
	ok := s.requests.handleInLoop(it) && s.in.socketEmpty && !s.locks.begun.stuck()
	s.in.unhandled = !ok || len(s.locks.begun) > 0
	if !ok {
		return eventloop.Leave
	}
	return eventloop.Stay
}

// tryRead reads what has arrived. It returns false if the goroutine must go on: something has ended
// the reading, or there is no room for what comes behind a command that waits.
func (s *session) tryRead() bool {
	for !s.locks.begun.alone() || s.in.hasRoom() {
		n, err := s.client.socket.TryRead(s.in.buf[s.in.end:])
		if err == syscall.EAGAIN {
			s.in.socketEmpty = true
			return true
		}
		s.in.filled(n, err)
		if s.in.readErr != nil || !s.locks.begun.alone() || s.in.socketEmpty {
			return s.in.readErr == nil
		}
	}
	s.in.socketEmpty = false
	return false
}

// Answered makes the loop call Ready for lock commands that have begun, or wakes the goroutine.
func (s *session) Answered(it *eventloop.Iteration) {
	s.x.wake()
	s.client.reg.Notify(it)
}
