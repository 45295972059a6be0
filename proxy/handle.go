package proxy

import (
	"math"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/passthrough"
)

// handle handles every whole request in the buffer, and those that come while it waits. It stops
// behind lock commands that wait for something. It returns false when the session has no further
// requests.
func (d *dispatcher) handle() (more bool) {
	more = true
	for again := true; again; {
		had := d.in.news
		if d.handleWhole(nil) == ends {
			return false
		}
		if len(d.locks.begun) > 0 {
			d.pipe.AwaitRoom()
			d.locks.advance(nil)
			again = len(d.locks.begun) == 0 // for what stands behind them
			continue
		}
		d.relayBatch(nil) // can wait for a connection
		// If more has come, makeRoom must not see that before the framer.
		if again = d.in.news != had; !again {
			more = d.makeRoom() // can wait, too
		}
	}
	d.client.publish()
	d.pipe.Flush(nil)
	return more
}

// handleInLoop handles what is in the buffer as far as that needs no waiting, in an event loop. The
// last request can be incomplete. It returns false if the session's goroutine must go on.
func (d *dispatcher) handleInLoop(it *eventloop.Iteration) bool {
	ok := d.handleWhole(it) == goesOn && d.batch.requests < maxBatch && d.in.end < len(d.in.buf) &&
		d.relayBatch(it)
	if ok {
		d.in.compact()
	}
	sent := d.pipe.Flush(it)
	d.client.publish()
	return ok && sent
}

// handleWhole dispatches the whole requests in the buffer, but leaves the last batch open, of lock
// commands or of requests. It stops at the request with which the Pipe was lost: the client gets no
// answer after that one's. It also stops where lock commands must be answered first. In an event
// loop it stops where a batch is full: a goroutine gives way to others.
func (d *dispatcher) handleWhole(it *eventloop.Iteration) verdict {
	// A batch that is open has not been relayed yet.
	for d.in.start < d.in.end && !d.locks.begun.alone() &&
		(it != nil || d.batch.requests > 0 || !d.pipe.Lost()) {
		if it != nil && d.batch.requests == maxBatch {
			break
		}
		req, whole, err := d.in.framer.Next(d.in.buf[d.in.start:d.in.end])
		switch {
		case it != nil && err != nil:
			return waits
		case it != nil && !whole:
			return goesOn
		case err != nil && len(d.locks.begun) > 0:
			return goesOn
		case err != nil:
			d.relayBatch(nil)
			if err = d.x.admit(err); err == nil {
				continue
			}
			if d.streaming && d.skipped == nil {
				d.pipe.Relay(passthrough.Request{Piece: passthrough.Broken}, nil)
			}
			d.server.logProtocol(d.client.holder.Addr, err)
			d.x.reply(encodeError(err))
			return ends
		case whole && d.addLock(req, it):
			if it != nil && d.locks.begun.stuck() {
				return waits
			}
			continue
		}
		if len(d.locks.begun) > 0 {
			return goesOn // it has to wait for them
		}
		if whole && d.addToBatch(req, it) {
			continue
		}
		if !d.relayBatch(it) {
			return waits
		}
		d.in.start += len(req.Raw)
		switch {
		case d.streaming:
			d.handlePiece(req.Raw, whole)
		case whole && len(req.Args) > 0:
			next := d.dispatch(req, it)
			if next == waits {
				d.in.start -= len(req.Raw)
			}
			if next != goesOn {
				return next
			}
		}
		if !whole {
			break
		}
	}
	return goesOn
}

// handlePiece relays a piece of a request that is too large to hold, or skips it.
func (d *dispatcher) handlePiece(raw []byte, last bool) {
	spec := d.skipped
	if last {
		d.streaming, d.skipped = false, nil
	}
	switch {
	case spec == nil && last:
		d.pipe.Relay(passthrough.Request{Raw: raw, Piece: passthrough.Last}, nil)
	case spec == nil:
		d.pipe.Relay(passthrough.Request{Raw: raw, Piece: passthrough.Further}, nil)
	case last:
		d.locks.refuseLarge(spec)
	}
}

// makeRoom prepares the buffer for the next read, and begins to stream a request that has outgrown
// it. It returns false when a request that can't be streamed is too large.
func (d *dispatcher) makeRoom() bool {
	d.in.compact()
	if d.in.end < len(d.in.buf) {
		return true
	}
	limit := maxSessionBuf
	args, argc := d.in.framer.Head(d.in.buf[:d.in.end], 1)
	held := lookupHead(args).mustBeWhole()
	if held {
		limit = max(limit, d.server.cfg.ClientBuffer)
	}
	// An inline request and a header line have their own limits, which the framer enforces.
	if len(d.in.buf) < limit || argc == 0 {
		if d.in.grow(limit) {
			return true
		}
		if argc == 0 || held {
			d.x.reply(encodeError(errNoRoom))
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
	args, _ := d.in.framer.Head(d.in.buf[:d.in.end], math.MaxInt)
	cmd := lookupHead(args)
	d.streaming, d.skipped = true, cmd.lock
	d.began(cmd, cmd.Command)
	raw := d.in.framer.Stream(d.in.buf[:d.in.end])
	// One that its arguments would make another command may show numbers, as CLIENT LIST does.
	expect := passthrough.Expect{Effect: cmd.Effect, Count: argc - 1, Numbers: cmd.mustBeWhole()}
	if cmd.Effect == commands.Hello {
		expect.Proto = int(commands.ParseLogin(args).Proto)
	}
	if cmd.Effect == commands.Auth || cmd.Effect == commands.Hello {
		d.awaitReplies()
	}
	expect.Replied = d.ends.watch(cmd, args, nil)
	if d.skipped == nil {
		d.send(passthrough.Request{Raw: raw, Expect: expect, Piece: passthrough.First})
	}
	d.in.end = copy(d.in.buf, d.in.buf[len(raw):d.in.end])
}

// addToBatch adds a request to the batch, if nothing needs to be decided about it, and in an event
// loop if that does not make it wait.
func (d *dispatcher) addToBatch(req resp.Request, it *eventloop.Iteration) bool {
	if len(req.Args) == 0 || req.Inline || req.Loose || d.streaming ||
		d.batch.bytes+len(req.Raw) > maxShared {
		return false
	}
	cmd := d.batch.lookup(req.Args[0])
	if !cmd.batchable() || d.x.observesForeign(cmd, req.Args) ||
		d.ends.mayEnd(cmd, req.Args) {
		return false
	}
	if d.batch.requests == maxBatch && !d.relayBatch(it) {
		return false
	}
	d.began(cmd, cmd.Command)
	d.in.start += len(req.Raw)
	d.batch.requests++
	d.batch.bytes += len(req.Raw)
	return true
}

// relayBatch relays the batch. In an event loop it reports false if it would have to wait.
func (d *dispatcher) relayBatch(it *eventloop.Iteration) (done bool) {
	n := d.batch.requests
	if n == 0 {
		return true
	}
	raw := d.in.buf[d.in.start-d.batch.bytes : d.in.start]
	err := d.x.send(passthrough.Request{Raw: raw, N: n, Way: passthrough.Shared}, it)
	if err == passthrough.ErrWaits {
		return false
	}
	d.batch.requests, d.batch.bytes = 0, 0
	if err != nil {
		for range n {
			d.x.reply(encodeError(err))
		}
	}
	return true
}

// addLock begins a lock command together with those before it. It reports false, and begins
// nothing, if those must be answered first, as when one of them concerns the same lock. The same
// goes for a command that must run by itself: the state of the connection may not allow it.
func (d *dispatcher) addLock(req resp.Request, it *eventloop.Iteration) bool {
	if len(req.Args) == 0 || d.streaming {
		return false
	}
	cmd := d.batch.lookup(req.Args[0])
	if cmd.lock == nil || cmd.lock.CheckArity(req.Args) != nil || it != nil && cmd.lock.Heavy ||
		d.client.drains() {
		return false
	}
	if !d.locks.begun.takes(cmd.lock, req.Args) {
		return false
	}
	if len(d.locks.begun) == 0 {
		if !d.relayBatch(it) {
			return false
		}
		joins := cmd.lock.Waits(req.Args) && !cmd.lock.ReadsFirst
		// A release that begins keeps a waiter, and a wait begins when those before it have ended.
		if d.pipe.Blocks() || joins && d.pipe.Status().Owes {
			if it != nil {
				return false
			}
			d.x.await(d.pipe.Barrier())
		}
		state, settled := d.pipe.State()
		if !settled || !state.Plain() || !state.Admitted ||
			cmd.way == passthrough.Home && state.Has(passthrough.Watching) {
			return false
		}
	}
	d.began(cmd, cmd.Command)
	d.in.start += len(req.Raw)
	d.locks.startLock(cmd, req.Args, false, it)
	return true
}
