package proxy

// How a session rests: an event loop reads its client, and passes on requests about which nothing needs to be decided, until something comes that
// is for the session's goroutine.

import (
	"syscall"

	"lockproxy/internal/eventloop"
)

// rest leaves the client to the event loop, if that can be, and returns when the goroutine is wanted. It reports whether there is something to
// handle; else the client must be read.
func (s *session) rest() (read bool) {
	if !s.drained || s.streaming || s.draining.Load() || s.seat == nil || !s.pipe.Sharing() || !s.seat.Enter(s.socket.Raw()) {
		return false
	}
	s.seat.Wait()
	read, s.left = s.left, false
	return read
}

// leaveSeat has no event loop look at the client any more.
func (s *session) leaveSeat() {
	if s.seat != nil {
		s.seat.Close(s.socket.Raw())
	}
}

// Ready reads what has come and passes it on. It leaves to the goroutine what it can't pass on at once.
func (s *session) Ready(turn *eventloop.Turn) eventloop.Next {
	if s.draining.Load() {
		return eventloop.Leave
	}
	n, err := s.socket.TryRead(s.buf[s.end:])
	if err == syscall.EAGAIN {
		return eventloop.Stay
	}
	s.took(n, err)
	if s.left = err != nil || !s.passRun(turn) || !s.drained; s.left {
		return eventloop.Leave
	}
	return eventloop.Stay
}

// passRun passes on what is in the buffer, as handle does, if that is a run of requests, and perhaps the beginning of another one. What it doesn't
// pass on is as if it had not looked at it.
func (s *session) passRun(turn *eventloop.Turn) bool {
	for s.start < s.end && s.run.requests < maxRun {
		req, whole, err := s.framer.Next(s.buf[s.start:s.end])
		if err != nil || whole && !s.joinsRun(req) {
			return false
		}
		if !whole {
			break
		}
	}
	if s.run.requests == maxRun || s.end == len(s.buf) {
		return false
	}
	if n := s.run.requests; n > 0 {
		if !s.pipe.TryRelayRun(s.buf[s.start-s.run.bytes:s.start], n, turn) {
			return false
		}
		s.run.requests, s.run.bytes = 0, 0
		s.meter.fold()
	}
	s.start, s.end = 0, copy(s.buf, s.buf[s.start:s.end])
	return true
}
