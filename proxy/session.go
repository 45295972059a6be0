package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/peer"
	"lockproxy/internal/resp"
	"lockproxy/internal/socket"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

const (
	minSessionBuf = 1 << 10  // what most clients never need more than; see makeRoom
	maxSessionBuf = 72 << 10 // a value of 64 KB is read at once, with what stands around it
	growth        = 4        // how much larger a buffer becomes that was too small; 2 leaves more garbage
)

// session serves one client. Its goroutine, or while it rests an event loop, reads the client,
// frames requests and sends each on its way; the lane or the Pipe's goroutine brings back the
// replies.
type session struct {
	server   *Server
	raw      net.Conn                // as it was accepted
	nc       net.Conn                // raw, or what wrap put around it
	from     io.Reader               // nc's bytes
	socket   *socket.Socket          // raw's; nil if it has none
	reg      *eventloop.Registration // where an event loop reads the client in place of the goroutine; nil if none does
	meter    *meter
	pipe     *passthrough.Pipe
	framer   *resp.Framer
	holder   lockcmd.Holder
	identity upstream.Identity // of the lock command that is running
	words    []string          // room for the words of a script's request
	script   []byte            // room for its bytes

	batch batch     // of requests that are passed on together
	locks lockBatch // of lock commands that are asked together

	buf          []byte // buf[start:end] has been read and not yet been passed on
	start, end   int
	reserved     int64         // of buf, what is accounted for in the server's buffers
	watchedBytes int           // bytes that watches have read
	socketEmpty  bool          // the last read has left nothing in the socket
	unhandled    bool          // the event loop has read something that it has left to the goroutine
	streaming    bool          // a request too large to hold is on its way
	tooLarge     *lockcmd.Spec // what that request is, if it is a lock command: it is skipped
	readErr      error         // what ended the reading of the client, once something has
	timer        *time.Timer
	watch        *clientWatch        // of a lock command that waits
	late         *passthrough.Answer // of a script that was given up; nil if there was none
	guard        *peer.Guard         // ends the session when the client's machine is lost; nil if that can't be known

	phases
	idleEnd time.Time // written before the session is draining: when it may end though it has asked nothing
	ctx     context.Context
	cancel  context.CancelFunc
}

// begin serves a client that has been greeted.
func (s *session) serve() {
	if s.setPhase(serving) == draining {
		s.nc.SetReadDeadline(s.idleEnd)
	}
	s.buf, s.socketEmpty = make([]byte, minSessionBuf), true
	s.openHome()
	if !s.park() {
		s.Resume()
	}
}

// Resume serves the client until it or the proxy ends the session, or an event loop serves it.
func (s *session) Resume() {
	for s.readErr == nil {
		if !s.unhandled {
			s.read()
		}
		s.unhandled = false
		for more := true; more; {
			asked := s.end > s.start || s.batch.requests > 0
			if s.drains() {
				s.setCorked(true)
			}
			if !s.handle() {
				s.linger()
			}
			more = s.is(corked) && s.readErr == nil && s.tryClose(asked)
		}
		if s.pipe.Status().Lost { // the one place that sees to it: nothing more is read for a Pipe that is lost
			s.linger()
		}
		if s.readErr == nil && s.park() {
			return
		}
	}
	s.finish()
	s.reserveBuffer(0)
	s.cancel()
	s.server.ended(s)
}

// openHome opens the client's home before its first request, so that nothing that it asks waits for
// that. If there is no connection to be had, the first request tries again.
func (s *session) openHome() {
	s.connect(passthrough.Home)
	s.pipe.Flush()
}

// read takes what the client has sent, at least a byte of it, into the buffer.
func (s *session) read() {
	n, err := s.from.Read(s.buf[s.end:])
	if isTimeout(err) && s.drains() { // drain has asked it to look
		err = nil
	}
	s.consumed(n, err)
}

// consumed records a read into the buffer.
func (s *session) consumed(n int, err error) {
	s.socketEmpty = s.end+n < len(s.buf)
	s.end += n
	s.readErr = err
	if n > 0 {
		s.meter.addRead(n)
		s.holder.MarkDelivered(s.meter.in.Load())
	}
}

// handle passes on every whole request in the buffer. It returns false when the session has no
// further requests.
func (s *session) handle() (more bool) {
	for had := -1; had != s.watchedBytes; {
		had = s.watchedBytes
		if !s.handleWhole() {
			return false
		}
		s.finishLocks() // more may come before these are answered, as in handleWhole
	}
	s.relayBatch()
	more = s.makeRoom()
	s.meter.publish()
	s.pipe.Flush()
	return more
}

// handleWhole does so, except that it leaves the last batch open: of lock commands, or a run of
// requests. It leaves what stands behind a request with which the Pipe was lost: what that was
// answered is the last that the client is told.
func (s *session) handleWhole() (more bool) {
	for s.start < s.end && (s.batch.requests > 0 || !s.pipe.Status().Lost) { // a run has not been passed on yet
		req, whole, err := s.framer.Next(s.buf[s.start:s.end])
		if err != nil {
			s.finishLocks()
			s.relayBatch()
			if err = s.admit(err); err == nil {
				continue
			}
			if s.streaming && s.tooLarge == nil {
				s.pipe.Relay(passthrough.Request{Piece: passthrough.Broken})
			}
			s.reply(encodeError("", err))
			return false
		}
		if whole && s.addLock(req) {
			continue
		}
		if len(s.locks) > 0 {
			if s.finishLocks(); s.pipe.Status().Lost {
				break
			}
		}
		if whole && s.addToBatch(req) {
			continue
		}
		s.relayBatch()
		s.start += len(req.Raw)
		switch {
		case s.tooLarge != nil:
			if whole {
				s.refuseLarge()
			}
		case s.streaming:
			piece := passthrough.Further
			if s.streaming = !whole; whole {
				piece = passthrough.Last
			}
			s.pipe.Relay(passthrough.Request{Raw: req.Raw, Piece: piece})
		case whole && len(req.Args) > 0:
			if !s.dispatch(req) {
				return false
			}
		}
		if !whole {
			break
		}
	}
	return true
}

// makeRoom prepares the buffer for the next read, larger after one that has filled it, and begins
// to stream a request that has outgrown it. It returns false when a request that can't be streamed
// is too large.
func (s *session) makeRoom() bool {
	if s.start > 0 {
		room, size := s.buf, len(s.buf)
		switch filled := s.end == size; {
		case s.start == s.end && size > freeBuf && s.server.buffers.scarce():
			size = minSessionBuf
		case filled && size < maxSessionBuf, size > maxSessionBuf && s.start == s.end:
			size = min(growth*size, maxSessionBuf)
		}
		if size != len(s.buf) && s.reserveBuffer(size) {
			room = make([]byte, size)
			s.framer.Forget()
		}
		s.start, s.end, s.buf = 0, copy(room, s.buf[s.start:s.end]), room
	}
	if s.end < len(s.buf) {
		return true
	}
	limit := maxSessionBuf
	args, argc := s.framer.Head(s.buf[:s.end])
	if lookupHead(args).mustBeWhole() {
		limit = max(limit, s.server.cfg.ClientBuffer)
	}
	// An inline request and a header line have limits of their own, which the framer enforces.
	if len(s.buf) < limit || argc == 0 {
		size := growth * len(s.buf)
		if len(s.buf) < limit {
			size = min(size, limit)
		}
		if s.reserveBuffer(size) {
			s.buf = append(make([]byte, 0, size), s.buf...)[:size]
			return true
		}
		if argc == 0 || lookupHead(args).mustBeWhole() {
			s.reply(encodeError("", errNoRoom))
			return false
		}
	}
	return s.stream(argc)
}

// lookupHead is the command of a request of which args have come.
func lookupHead(args [][]byte) *command {
	if len(args) == 0 {
		return lookup(nil)
	}
	return lookup(args[0])
}

// stream begins to pass on the request in the buffer before it is complete.
func (s *session) stream(argc int) bool {
	args, _ := s.framer.Head(s.buf[:s.end])
	cmd, proto := lookupHead(args), 0
	if cmd.Effect == commands.Hello && len(args) > 1 {
		proto = helloProto(args[1])
	}
	s.streaming, s.tooLarge = true, cmd.lock
	s.meter.count(cmd.kind)
	raw := s.framer.Stream(s.buf[:s.end])
	expect := passthrough.Expect{Effect: cmd.Effect, Count: argc - 1, Proto: proto}
	if s.tooLarge == nil && s.connected(passthrough.Home, expect.Effect) {
		s.pipe.Relay(passthrough.Request{Raw: raw, Expect: expect, Piece: passthrough.First})
	}
	s.end = copy(s.buf, s.buf[len(raw):s.end])
	return true
}

// dispatch sends one request where it belongs. It returns false when the session has no further
// requests.
func (s *session) dispatch(req resp.Request) (more bool) {
	cmd := lookup(req.Args[0])
	s.meter.count(cmd.kind)
	if cmd.lock != nil {
		s.runLock(cmd.lock, req)
		return true
	}
	if cmd.answer != nil && cmd.answer(s, req) {
		return true
	}
	r := routeOf(cmd, req)
	if cmd.Competes && s.server.locks.Waiting() {
		state, _ := s.pipe.State()
		r.Accepted = s.server.locks.ObserveForeign(state.DB, cmd.foreignLocks(req.Args))
	}
	if cmd.perNode && s.server.cfg.Upstream.IsCluster() {
		r.way, r.Effect = passthrough.Shared, commands.NoEffect // there is no node whose state it could change
	}
	if cmd.syncFirst != nil {
		defer s.pipe.Pin(passthrough.Unpinned) // the connection, until the command goes by it
		var err error
		if r.catchesUp, err = s.syncWrites(cmd.syncFirst); err != nil {
			s.reply(encodeError("", err))
			return err != errWritesUnknown
		}
	}
	if s.connected(r.way, r.Effect) {
		s.relay(r)
	}
	return r.Effect != commands.Quit
}

// mayAnswer reports whether the proxy can answer what the upstream is asked first. Within a
// transaction, and where only a few commands may be sent, the upstream alone answers.
func (s *session) mayAnswer() (state passthrough.State, ok bool) {
	if s.connect(passthrough.Shared) != nil { // what goes to the upstream meets the same error
		return state, false
	}
	state = s.awaitState()
	return state, !state.InMulti && !state.Untracked && !state.Subscribed()
}

func (s *session) relay(r route) {
	switch r.Effect {
	case commands.Quit:
		s.meter.lingering.Store(true)
	case commands.Unanswered:
		if state, _ := s.pipe.State(); state.Streaming { // of a replica it is what it should be
			break
		}
		if state := s.awaitState(); !state.InMulti && !state.Subscribed() && !state.Untracked && !state.Streaming {
			r.Effect = passthrough.MaybeUnanswered
		}
	}
	s.pipe.Relay(r.request())
	if r.Effect == commands.Reset {
		s.await(s.pipe.Barrier())
		s.framer.Unauthenticated(true) // perhaps
	}
}

var quitReply = []byte("+OK\r\n")

// connected makes sure that there is a way for a request, or answers it otherwise.
func (s *session) connected(way passthrough.Way, effect commands.Effect) bool {
	err := s.connect(way)
	switch {
	case err == nil:
		return true
	case effect == commands.Quit:
		s.meter.lingering.Store(true)
		s.pipe.Reply(quitReply, passthrough.Finally)
	default:
		s.reply(encodeError("", err))
	}
	return false
}

func (s *session) connect(way passthrough.Way) error {
	return s.pipe.Connect(s.ctx, way)
}

// linger has the session end. The client is sent the end of the connection with the last of all
// that it is owed, and what it still sends is read until it closes too, for a while: to close at
// once would make the kernel throw away replies on their way.
func (s *session) linger() {
	s.meter.lingering.Store(true)
	s.pipe.End(passthrough.WhenAnswered)
	for s.readErr == nil {
		n, err := s.nc.Read(s.buf)
		if n > 0 && s.is(drained) {
			s.server.counters.tooLate.Add(1)
		}
		if isTimeout(err) && !s.ends() { // drain has asked it to look
			s.nc.SetReadDeadline(time.Time{})
			if s.ends() {
				s.nc.SetReadDeadline(time.Now().Add(lingerTimeout))
			}
			continue
		}
		s.readErr = err
	}
}

// kill ends the session at once.
func (s *session) kill() {
	s.cancel()
	s.pipe.End(passthrough.AtOnce)
	s.closeRaw()
}

// closeRaw closes the connection at once. It may be called from any goroutine.
func (s *session) closeRaw() {
	s.raw.Close() // not nc: TLS would wait for room to say goodbye
	s.reg.Wake()
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
