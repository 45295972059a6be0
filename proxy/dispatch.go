package proxy

import (
	"math"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// dispatcher sends each request of a session where it belongs.
type dispatcher struct {
	locker
	batch     batch   // requests that are relayed together
	touched   touches // by the transaction that may be under way
	streaming bool    // a request too large to hold is on its way
	lastDelay lastDelay
	skipped   *lockcmd.Spec // it is this lock command, which is not relayed; nil for others
}

// handle handles every whole request in the buffer. It returns false when the session has no
// further requests.
func (d *dispatcher) handle() (more bool) {
	for had := -1; had != d.watched; {
		had = d.watched
		if !d.handleWhole() {
			return false
		}
		d.finishLocks() // more may come before these are answered, as in handleWhole
	}
	d.relayBatch()
	more = d.makeRoom()
	d.client.publish()
	d.pipe.Flush()
	return more
}

// handleWhole dispatches the whole requests in the buffer, but leaves the last batch open, of lock
// commands or of requests. It stops at the request with which the Pipe was lost: the client gets no
// answer after that one's.
func (d *dispatcher) handleWhole() (more bool) {
	// A batch that is open has not been relayed yet.
	for d.start < d.end && (d.batch.requests > 0 || !d.pipe.Status().Lost) {
		req, whole, err := d.framer.Next(d.buf[d.start:d.end])
		if err != nil {
			d.finishLocks()
			d.relayBatch()
			if err = d.admit(err); err == nil {
				continue
			}
			if d.streaming && d.skipped == nil {
				d.pipe.Relay(passthrough.Request{Piece: passthrough.Broken})
			}
			d.reply(encodeError(err))
			return false
		}
		if whole && d.addLock(req, nil) {
			continue
		}
		if len(d.begun) > 0 {
			if d.finishLocks(); d.pipe.Status().Lost {
				break
			}
		}
		if whole && d.addToBatch(req) {
			continue
		}
		d.relayBatch()
		d.start += len(req.Raw)
		switch {
		case d.streaming:
			d.handlePiece(req.Raw, whole)
		case whole && len(req.Args) > 0:
			if !d.dispatch(req) {
				return false
			}
		}
		if !whole {
			break
		}
	}
	return true
}

// handlePiece relays a piece of a request that is too large to hold, or skips it.
func (d *dispatcher) handlePiece(raw []byte, last bool) {
	spec := d.skipped
	if last {
		d.streaming, d.skipped = false, nil
	}
	switch {
	case spec == nil && last:
		d.pipe.Relay(passthrough.Request{Raw: raw, Piece: passthrough.Last})
	case spec == nil:
		d.pipe.Relay(passthrough.Request{Raw: raw, Piece: passthrough.Further})
	case last:
		d.refuseLarge(spec)
	}
}

// makeRoom prepares the buffer for the next read, and begins to stream a request that has outgrown
// it. It returns false when a request that can't be streamed is too large.
func (d *dispatcher) makeRoom() bool {
	d.compact()
	if d.end < len(d.buf) {
		return true
	}
	limit := maxSessionBuf
	args, argc := d.framer.Head(d.buf[:d.end], 1)
	held := lookupHead(args).mustBeWhole()
	if held {
		limit = max(limit, d.server.cfg.ClientBuffer)
	}
	// An inline request and a header line have their own limits, which the framer enforces.
	if len(d.buf) < limit || argc == 0 {
		if d.grow(limit) {
			return true
		}
		if argc == 0 || held {
			d.reply(encodeError(errNoRoom))
			return false
		}
	}
	d.stream(argc)
	return true
}

// lookupHead is the command of a request of which args have come.
func lookupHead(args [][]byte) *command {
	if len(args) == 0 {
		return lookup(nil)
	}
	return lookup(args[0])
}

// stream begins to relay the request in the buffer before it is complete.
func (d *dispatcher) stream(argc int) {
	args, _ := d.framer.Head(d.buf[:d.end], math.MaxInt)
	cmd := lookupHead(args)
	d.streaming, d.skipped = true, cmd.lock
	d.client.count(cmd.kind)
	raw := d.framer.Stream(d.buf[:d.end])
	expect := passthrough.Expect{Effect: cmd.Effect, Count: argc - 1}
	if cmd.Effect == commands.Hello {
		expect.Proto = int(commands.ParseLogin(args).Proto)
	}
	if cmd.Effect == commands.Auth || cmd.Effect == commands.Hello {
		d.awaitReplies()
	}
	expect.Replied = d.watchLockEnds(cmd, args, nil)
	if d.skipped == nil && d.connected(passthrough.Home, expect.Effect) {
		d.pipe.Relay(passthrough.Request{Raw: raw, Expect: expect, Piece: passthrough.First})
	}
	d.end = copy(d.buf, d.buf[len(raw):d.end])
}

// dispatch sends one request where it belongs. It returns false when the session has no further
// requests.
func (d *dispatcher) dispatch(req resp.Request) (more bool) {
	cmd := lookup(req.Args[0])
	d.client.count(cmd.kind)
	if cmd.lock != nil {
		d.runLock(cmd.lock, req)
		return true
	}
	if answer := cmd.answers(req.Args); answer != nil && answer(&d.exchange, req) {
		return true
	}
	if d.delays(cmd, req.Args) && d.delaySet(cmd, req) {
		return true
	}
	r := routeOf(cmd, req)
	r.Replied = d.watchLockEnds(cmd, req.Args, d.observeForeign(cmd, req.Args))
	if cmd.perNode && d.server.cfg.Upstream.IsCluster() {
		// There is no node whose state it could change.
		r.Way, r.Effect = passthrough.Shared, commands.NoEffect
	}
	if cmd.syncFirst != nil {
		defer d.pipe.Pin(passthrough.Unpinned) // the home, until the command goes there
		var err error
		if r.SyncsWrites, err = d.syncWrites(cmd.syncFirst); err != nil {
			d.reply(encodeError(err))
			return err != errWritesUnknown
		}
	}
	if d.connected(r.Way, r.Effect) {
		d.relay(r)
	}
	return r.Effect != commands.Quit && !(r.Effect == commands.Reset && d.isNobody())
}

// isNobody reports whether the upstream did not let the client in again after RESET, and would
// serve it nevertheless: as the user of a connection without a login. If the client must log in
// first, it can.
func (d *dispatcher) isNobody() bool {
	if state, _ := d.pipe.State(); !state.LoginFailed {
		return false
	}
	reply, _ := d.noAuth()
	return reply == nil
}

// awaitReplies is for a login: behind a request without an answer, Redis as of 7.2 and Valkey can
// leave out that they refuse it. Then every reply would be taken for that of the request before.
func (d *dispatcher) awaitReplies() { d.await(d.pipe.Barrier()) }

func (d *dispatcher) relay(r passthrough.Request) {
	switch r.Effect {
	case commands.Quit:
		d.client.lingering.Store(true)
	case commands.Auth, commands.Hello:
		d.awaitReplies()
	case commands.Unanswered:
		if state, _ := d.pipe.State(); state.Streaming { // of a replica it is what it should be
			break
		}
		state := d.awaitState()
		if !state.InMulti && !state.Subscribed() && !state.Untracked && !state.Streaming {
			d.reply(d.unlessNoAuth(state, nil)) // Redis ignores it
			return
		}
	}
	d.pipe.Relay(r)
	if r.Effect == commands.Reset { // nothing may be sent behind a login that can fail
		d.await(d.pipe.Barrier())
		d.pipe.Flush()
		d.await(d.pipe.Barrier())
		d.framer.Unauthenticated(true) // perhaps
	}
}

// connected makes sure that there is a way for a request, or answers the request.
func (d *dispatcher) connected(way passthrough.Way, effect commands.Effect) bool {
	err := d.route(way)
	switch {
	case err == nil:
		return true
	case effect == commands.Quit:
		d.client.lingering.Store(true)
		d.pipe.Reply([]byte("+OK\r\n"), passthrough.Finally)
	default:
		d.reply(encodeError(err))
	}
	return false
}

// addLock begins a lock command together with those before it. If one of them concerns the same
// lock, they are answered first. It reports false, and begins nothing, if the command must run by
// itself: if it can wait, or the state of the connection is not known to allow it. In an event
// loop, where it is not nil, it also reports false if others must be answered first.
func (d *dispatcher) addLock(req resp.Request, it *eventloop.Iteration) bool {
	if len(req.Args) == 0 || d.streaming {
		return false
	}
	cmd := d.batch.lookup(req.Args[0])
	if cmd.lock == nil || !cmd.lock.AsksOnce(req.Args) || cmd.way != passthrough.Shared ||
		d.client.drains() {
		return false
	}
	if len(d.begun) == maxLockBatch || !d.begun.asked() || d.begun.concerns(req.Args[1]) {
		if it != nil {
			return false
		}
		d.finishLocks()
	}
	if len(d.begun) == 0 {
		if it == nil {
			d.relayBatch()
		} else if !d.tryRelayBatch(it) {
			return false
		}
		if state, settled := d.pipe.State(); !settled || !state.Plain() || !state.Admitted {
			return false
		}
	}
	d.client.count(cmd.kind)
	d.start += len(req.Raw)
	d.startLock(cmd.lock, req.Args, it)
	return true
}
