package proxy

// How a session rests: an event loop reads its client and relays requests that need no waiting,
// until something comes that is for the session's goroutine.

import (
	"syscall"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/passthrough"
)

// park leaves the client to the event loop, if one can read it and nothing has come that the loop
// cannot deal with.
func (s *session) park() bool {
	return s.drained && !s.streaming && !s.drains() && s.seat != nil && s.seat.Enter(s.socket.Raw()) &&
		s.seat.Park()
}

// leaveSeat has no event loop look at the client any more.
func (s *session) leaveSeat() {
	if s.seat != nil {
		s.seat.Close(s.socket.Raw())
	}
}

// Ready reads what has come and passes it on. It leaves to the goroutine what it can't pass on at
// once.
func (s *session) Ready(turn *eventloop.Turn) eventloop.Next {
	if s.drains() {
		return eventloop.Leave
	}
	n, err := s.socket.TryRead(s.buf[s.end:])
	if err == syscall.EAGAIN {
		return eventloop.Stay
	}
	s.took(n, err)
	if s.left = err != nil || !s.passInPlace(turn) || !s.drained; s.left {
		return eventloop.Leave
	}
	return eventloop.Stay
}

// passInPlace passes on what is in the buffer, as handle does, if that is requests that need no
// waiting, and perhaps the beginning of another one. What it doesn't pass on is as if it had not
// looked at it.
func (s *session) passInPlace(turn *eventloop.Turn) bool {
	passed := s.passWhole(turn)
	sent := s.pipe.TryFlush(turn)
	s.meter.fold()
	return passed && sent
}

// passWhole is passInPlace up to where what goes by the home is sent.
func (s *session) passWhole(turn *eventloop.Turn) bool {
	for s.start < s.end && s.run.requests < maxRun {
		req, whole, err := s.framer.Next(s.buf[s.start:s.end])
		if err != nil {
			return false
		}
		if !whole {
			break
		}
		if !s.joinsRun(req) && !(s.passRun(turn) && s.passOne(req, turn)) {
			return false
		}
	}
	if s.run.requests == maxRun || s.end == len(s.buf) || !s.passRun(turn) {
		return false
	}
	s.start, s.end = 0, copy(s.buf, s.buf[s.start:s.end])
	return true
}

// passRun passes on the run, if there is one.
func (s *session) passRun(turn *eventloop.Turn) bool {
	n := s.run.requests
	if n == 0 {
		return true
	}
	raw := s.buf[s.start-s.run.bytes : s.start]
	done := s.pipe.TryRelay(passthrough.Request{Raw: raw, N: n, Way: passthrough.Shared}, turn)
	if done {
		s.run.requests, s.run.bytes = 0, 0
	}
	return done
}

// passOne passes on a single request that goes by the home, or runs a script.
func (s *session) passOne(req resp.Request, turn *eventloop.Turn) bool {
	if len(req.Args) == 0 {
		return false
	}
	cmd := lookup(req.Args[0])
	if !cmd.relayed(s.server.locks.Waiting()) || cmd.ofNode && s.server.cfg.Upstream.IsCluster() {
		return false
	}
	r := routeOf(cmd, req)
	switch r.Effect {
	case commands.Quit, commands.Reset, commands.Unanswered:
		return false // these take several steps: see relay
	}
	done := s.pipe.TryRelay(r.request(), turn)
	if done {
		s.meter.counted(cmd.kind)
		s.start += len(req.Raw)
	}
	return done
}
