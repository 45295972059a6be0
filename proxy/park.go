package proxy

// While a session is parked an event loop reads its client, and relays in place the requests that
// need no waiting, until something comes that is for the session's goroutine.

import (
	"syscall"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/passthrough"
)

// park leaves the client to the event loop. It returns false if the goroutine must read on: no loop
// can read the client, or something has come that needs the goroutine.
func (s *session) park() bool {
	return s.socketEmpty && !s.streaming && !s.client.drains() && s.client.reg.Park()
}

// Ready reads what has arrived, finishes the lock commands that have been answered, and relays. It
// leaves to the goroutine what must wait. It reads first: the goroutine handles what has been read,
// and may park before it reads more.
func (s *session) Ready(it *eventloop.Iteration, arrived bool) eventloop.Next {
	if s.client.drains() {
		return eventloop.Leave
	}
	if arrived {
		if n, err := s.client.socket.TryRead(s.buf[s.end:]); err != syscall.EAGAIN {
			s.filled(n, err)
		}
		if s.readErr != nil {
			s.unhandled = true
			return eventloop.Leave
		}
	}
	n, ok := s.begun.answered()
	if !ok {
		return eventloop.Leave
	}
	if n > 0 {
		if s.finishFirst(n, it); s.pipe.Status().Lost {
			return eventloop.Leave
		}
	}
	return s.handleInPlace(it)
}

// handleInPlace handles what is in the buffer as far as that needs no waiting.
func (s *session) handleInPlace(it *eventloop.Iteration) eventloop.Next {
	ok := s.relayInPlace(it) && s.socketEmpty && s.begun.asked()
	s.unhandled = !ok || len(s.begun) > 0
	if !ok {
		return eventloop.Leave
	}
	return eventloop.Stay
}

// Answered makes the loop call Ready for lock commands that it has begun.
func (s *session) Answered(it *eventloop.Iteration) { s.client.reg.Notify(it) }

// relayInPlace relays all requests in the buffer, as handle does, if they need no waiting; the last
// can be incomplete. The rest stays in the buffer.
func (d *dispatcher) relayInPlace(it *eventloop.Iteration) bool {
	relayed := d.tryRelayAll(it)
	sent := d.pipe.TryFlush(it)
	d.client.publish()
	return relayed && sent
}

// tryRelayAll is relayInPlace without the sending of what goes by the home.
func (d *dispatcher) tryRelayAll(it *eventloop.Iteration) bool {
	for d.start < d.end && d.batch.requests < maxBatch {
		req, whole, err := d.framer.Next(d.buf[d.start:d.end])
		if err != nil {
			return false
		}
		if !whole {
			break
		}
		if d.addLock(req, it) {
			if !d.begun.asked() {
				return false
			}
			continue
		}
		if len(d.begun) > 0 {
			break // it has to wait for them
		}
		if !d.addToBatch(req) && !(d.tryRelayBatch(it) && d.tryRelayOne(req, it)) {
			return false
		}
	}
	if d.batch.requests == maxBatch || d.end == len(d.buf) || !d.tryRelayBatch(it) {
		return false
	}
	d.compact()
	return true
}

// tryRelayBatch is relayBatch that never waits. It reports false if it would have to.
func (d *dispatcher) tryRelayBatch(it *eventloop.Iteration) bool {
	n := d.batch.requests
	if n == 0 {
		return true
	}
	raw := d.buf[d.start-d.batch.bytes : d.start]
	done := d.pipe.TryRelay(passthrough.Request{Raw: raw, N: n, Way: passthrough.Shared}, it)
	if done {
		d.batch.requests, d.batch.bytes = 0, 0
	}
	return done
}

// tryRelayOne relays a single request that goes by the home, or runs a script.
func (d *dispatcher) tryRelayOne(req resp.Request, it *eventloop.Iteration) bool {
	if len(req.Args) == 0 {
		return false
	}
	cmd := lookup(req.Args[0])
	if !cmd.oneStep() || cmd.answers(req.Args) != nil || cmd.perNode && d.server.cfg.Upstream.IsCluster() ||
		d.concernsSessions(cmd, req.Args) {
		return false
	}
	r := routeOf(cmd, req)
	switch r.Effect {
	case commands.Quit, commands.Reset, commands.Unanswered:
		return false // these take several steps: see relay
	case commands.Auth, commands.Hello:
		if !d.pipe.Status().Idle {
			return false // see awaitReplies
		}
	}
	if d.delays(cmd, req.Args) {
		return false
	}
	r.Replied = d.observeForeign(cmd, req.Args)
	done := d.pipe.TryRelay(r, it)
	if done {
		d.client.count(cmd.kind)
		d.start += len(req.Raw)
	}
	return done
}
