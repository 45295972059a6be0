package proxy

import (
	"math"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/passthrough"
)

// handle handles every whole request in the buffer, and those that a watch puts there while it waits.
// It returns false when the session has no further requests.
func (d *dispatcher) handle() (more bool) {
	more = true
	for again := true; more && again; {
		had := d.in.watched
		next := d.handleWhole(nil)
		if next == ends {
			return false
		}
		d.locks.finishLocks(true)
		if d.locks.begun.asleep() {
			break
		}
		if len(d.locks.begun) == 0 {
			d.relayBatch(nil) // can wait for a connection
		}
		// More may have come, or a wait in front of more may have ended only now: then makeRoom must not
		// see that before the framer.
		if again = next == waits || had != d.in.watched; !again {
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

// verdict says how a session goes on after a request.
type verdict uint8

const (
	goesOn verdict = iota
	ends           // it has no further requests
	// waits says that the request is still in the buffer: only the session's goroutine can handle it,
	// or it stands behind a command that waits.
	waits
)

// handleWhole dispatches the whole requests in the buffer, but leaves the last batch open, of lock
// commands or of requests. It stops at the request with which the Pipe was lost: the client gets no
// answer after that one's. In an event loop it also stops where lock commands must be answered
// first, and where a batch is full: a goroutine gives way to others.
func (d *dispatcher) handleWhole(it *eventloop.Iteration) verdict {
	// A batch that is open has not been relayed yet.
	for d.in.start < d.in.end && (it == nil || !d.locks.begun.alone()) &&
		(it != nil || d.batch.requests > 0 || !d.pipe.Lost()) {
		if it != nil && d.batch.requests == maxBatch {
			break
		}
		if it == nil && d.locks.begun.alone() {
			if d.locks.finishLocks(false); d.locks.begun.asleep() {
				return waits
			}
		}
		req, whole, err := d.in.framer.Next(d.in.buf[d.in.start:d.in.end])
		switch {
		case it != nil && err != nil:
			return waits
		case it != nil && !whole:
			return goesOn
		case err != nil:
			d.locks.finishLocks(false)
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
			if it != nil {
				return goesOn // it has to wait for them
			}
			if d.locks.finishLocks(false); d.pipe.Lost() {
				break
			}
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
