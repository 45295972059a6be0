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
	return s.socketEmpty && !s.streaming && !s.drains() && s.reg.Park()
}

// Ready reads what has come and passes it on. It leaves to the goroutine what it can't pass on at
// once.
func (s *session) Ready(it *eventloop.Iteration) eventloop.Next {
	if s.drains() {
		return eventloop.Leave
	}
	n, err := s.socket.TryRead(s.buf[s.end:])
	if err == syscall.EAGAIN {
		return eventloop.Stay
	}
	s.consumed(n, err)
	if s.unhandled = err != nil || !s.relayInPlace(it) || !s.socketEmpty; s.unhandled {
		return eventloop.Leave
	}
	return eventloop.Stay
}

// passInPlace passes on what is in the buffer, as handle does, if that is requests that need no
// waiting, and perhaps the beginning of another one. What it doesn't pass on is as if it had not
// looked at it.
func (s *session) relayInPlace(it *eventloop.Iteration) bool {
	passed := s.relayWhole(it)
	sent := s.pipe.TryFlush(it)
	s.meter.publish()
	return passed && sent
}

// passWhole is passInPlace up to where what goes by the home is sent.
func (s *session) relayWhole(it *eventloop.Iteration) bool {
	for s.start < s.end && s.batch.requests < maxBatch {
		req, whole, err := s.framer.Next(s.buf[s.start:s.end])
		if err != nil {
			return false
		}
		if !whole {
			break
		}
		if !s.addToBatch(req) && !(s.tryRelayBatch(it) && s.tryRelayOne(req, it)) {
			return false
		}
	}
	if s.batch.requests == maxBatch || s.end == len(s.buf) || !s.tryRelayBatch(it) {
		return false
	}
	s.start, s.end = 0, copy(s.buf, s.buf[s.start:s.end])
	return true
}

// tryRelayBatch passes on the batch, if there is one.
func (s *session) tryRelayBatch(it *eventloop.Iteration) bool {
	n := s.batch.requests
	if n == 0 {
		return true
	}
	raw := s.buf[s.start-s.batch.bytes : s.start]
	done := s.pipe.TryRelay(passthrough.Request{Raw: raw, N: n, Way: passthrough.Shared}, it)
	if done {
		s.batch.requests, s.batch.bytes = 0, 0
	}
	return done
}

// passOne passes on a single request that goes by the home, or runs a script.
func (s *session) tryRelayOne(req resp.Request, it *eventloop.Iteration) bool {
	if len(req.Args) == 0 {
		return false
	}
	cmd := lookup(req.Args[0])
	if !cmd.oneStep(s.server.locks.Waiting()) || cmd.perNode && s.server.cfg.Upstream.IsCluster() {
		return false
	}
	r := routeOf(cmd, req)
	switch r.Effect {
	case commands.Quit, commands.Reset, commands.Unanswered:
		return false // these take several steps: see relay
	}
	done := s.pipe.TryRelay(r.request(), it)
	if done {
		s.meter.count(cmd.kind)
		s.start += len(req.Raw)
	}
	return done
}
