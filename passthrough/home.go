package passthrough

// A session's home: the upstream connection of its own. Whatever depends on a connection happens there.

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"syscall"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/socket"
	"lockproxy/internal/upstream"
)

// home reads the replies that come by a session's home.
type home struct {
	pipe    *Pipe
	conn    net.Conn
	way     io.ReadWriter   // conn's bytes
	socket  *socket.Socket  // conn's; nil if way isn't that
	seat    *eventloop.Seat // nil if no event loop reads it
	ended   chan struct{}   // closed when nobody reads any more
	closing bool            // guarded by Pipe.mu; the upstream has been told that nothing more is asked
	replies replyReader
	unasked []byte // guarded by Pipe.mu; the beginning of a push that comes while replies come by the lane
	failed  error  // what ended the event loop's reading
}

// openHome dials the session's home, which is set up as the session has set itself up.
func (p *Pipe) openHome(ctx context.Context) error {
	if p.lastHome != nil {
		p.out.hurry(1) // it may be waiting for the client
		<-p.lastHome.ended
		p.out.hurry(-1)
	}
	p.mu.Lock()
	setup := p.ledger.setup()
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, p.lanes.dialTimeout)
	defer cancel()
	conn, err := p.lanes.upstream.Dial(ctx, setup)
	if p.lanes.connected != nil {
		p.lanes.connected(err)
	}
	if err != nil {
		return err
	}
	h := &home{pipe: p, conn: conn, way: upstream.Raw(conn), ended: make(chan struct{})}
	if h.socket, _ = h.way.(*socket.Socket); h.socket != nil {
		h.seat = p.lanes.loops.NewSeat(h)
	}
	p.mu.Lock()
	if before := p.lastHome; before != nil {
		p.writes = max(p.writes, Elsewhere)
		if before.conn.RemoteAddr().String() != conn.RemoteAddr().String() {
			p.writes = Unknown
		}
	}
	p.home, p.lastHome, p.need = h, h, held
	if p.end >= ClientGone {
		conn.Close()
	}
	if every := p.lanes.homeIdle; every > 0 && p.idle == nil {
		p.idle = time.AfterFunc(every, p.closeIdle) // Wait stops it
	}
	p.mu.Unlock()
	p.lanes.homes.Add(1)
	go h.read() // ends when conn does; Close closes conn and Wait waits
	return nil
}

// close ends the connection. It may be called from any goroutine.
func (h *home) close() {
	h.conn.Close()
	h.seat.Rouse()
}

// read brings replies until the connection ends.
func (h *home) read() {
	defer close(h.ended)
	defer h.pipe.lanes.homes.Add(-1)
	err := h.copyReplies()
	if h.socket != nil {
		h.seat.Close(h.socket.Raw())
	}
	h.conn.Close()
	h.pipe.homeEnded(h, err)
}

// copyReplies returns why the connection ended.
func (h *home) copyReplies() error {
	var buf []byte
	for drained := true; ; {
		if drained && !h.replies.large() && h.socket != nil && h.seat.Enter(h.socket.Raw()) {
			buf = nil // of a size for what came before
			if h.seat.Wait(); h.failed != nil {
				return h.failed
			}
			h.pipe.out.waitBelow(0)
		}
		if buf == nil {
			buf = make([]byte, minBuf)
		}
		n, err := h.way.Read(buf)
		drained = n < len(buf)
		if n > 0 {
			if err := h.pipe.passHome(h, buf[:n]); err != nil {
				return err
			}
			h.pipe.out.waitBelow(0)
		}
		if errors.Is(err, io.EOF) {
			return errClosedByUpstream
		}
		if err != nil {
			return err
		}
		if n == len(buf) && n < bufSize {
			buf = make([]byte, 2*n)
		}
	}
}

// Ready gives the client what has come, unless it leaves so much unread that it must be waited for.
func (h *home) Ready(turn *eventloop.Turn) eventloop.Next {
	buf := turn.Buffer(laneBuf)
	n, err := h.socket.TryRead(buf)
	switch {
	case err == syscall.EAGAIN:
		return eventloop.Stay
	case err == io.EOF:
		h.failed = errClosedByUpstream
	case err != nil:
		h.failed = err
	default:
		h.failed = h.pipe.passHome(h, buf[:n])
	}
	switch {
	case h.failed != nil, h.replies.large(), h.pipe.out.unread():
		return eventloop.Leave
	case n == len(buf):
		return eventloop.Again
	}
	return eventloop.Stay
}

// closeIdle closes the home if nothing has needed it since this was last called.
func (p *Pipe) closeIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.end >= ClientGone || p.route == gone {
		return
	}
	busy := p.stay.any() || p.route != byLane && !p.ledger.empty() || !p.ledger.replaceable()
	switch {
	case p.home == nil:
	case p.need == recent:
		p.need = unneeded
	case p.need == unneeded && !busy:
		p.home.close()
		p.home = nil
	}
	p.idle.Reset(p.lanes.homeIdle)
}

// passHome gives the client its part of what was read. What comes next waits at the upstream, which has
// limits for it, until the client has taken that: see outbox.waitBelow.
func (p *Pipe) passHome(h *home, data []byte) (err error) {
	r := &h.replies
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.route == gone:
		return nil
	case p.route == byLane:
		return p.takeUnasked(h, data)
	case p.home == h && p.need == unneeded:
		p.need = recent
	}
	begun := h.unasked
	h.unasked = nil
	_, _, err = r.sort(p, data, -1)
	if len(begun) > 0 {
		r.out = append([][]byte{begun}, r.out...)
	}
	if r.size > largeReply {
		p.stay.large = largeFor
	}
	p.within = r.within() || p.ledger.Raw
	if change := p.ledger.pauses; change.made {
		p.lanes.pause(change.lasts)
		p.ledger.pauses = pauseChange{}
	}
	if p.end >= ClientGone {
		h.conn.SetReadDeadline(time.Now().Add(linger))
	}
	p.giveLocked(r.out...)
	p.room.Signal()
	if gone := p.out.err(); gone != nil && err == nil {
		err = errors.Join(errors.New("client is gone"), gone)
	}
	return err
}

// takeUnasked takes what comes by the home while replies come by the lane: pushes, or what Redis says
// before it closes. The client is given each whole, between two replies. mu is held.
func (p *Pipe) takeUnasked(h *home, data []byte) error {
	r := &h.replies
	r.dest, r.feed = relayed, false
	for len(data) > 0 {
		n, done, err := r.scan.Scan(data)
		if err != nil {
			return err
		}
		h.unasked = append(h.unasked, data[:n]...)
		data = data[n:]
		if len(h.unasked) > maxPushes || done && !p.pushLocked(h.unasked) {
			return errors.New("the upstream sends more by a client's own connection than it was asked for")
		}
		if done {
			h.unasked = nil
		}
	}
	return nil
}

// homeEnded does what the end of the session's home asks for. The session goes on, with another home,
// if this one was as a new connection but for the replies that are owed; otherwise it ends, as the
// client's own connection to the upstream would.
func (p *Pipe) homeEnded(h *home, err error) {
	p.mu.Lock()
	onLane := p.route == byLane
	withinReply := !onLane && h.replies.within()
	switch {
	case p.home != h, p.route == gone: // it was closed because nothing needed it, or the session has ended
		p.mu.Unlock()
		return
	case p.end >= ClientGone && onLane:
		p.home = nil // replies to come by the lane are still given to the client
		p.mu.Unlock()
		return
	}
	if p.ledger.effects > 0 && !onLane || withinReply || p.end >= ClientGone || p.stay.begun || p.stay.pinned || !p.ledger.replaceable() {
		p.mu.Unlock()
		p.finish(err, withinReply)
		return
	}
	p.home, p.need, p.writes = nil, recent, Unknown
	if !onLane {
		p.setRoute(dropped)
		lost := &upstream.Error{Addr: p.lanes.upstream.Addr, Sent: true, Err: err}
		p.giveLocked(p.settle(nil, math.MaxInt, lost))
		p.room.Broadcast()
	}
	p.mu.Unlock()
	if p.lanes.closedAlone(h.conn.RemoteAddr(), time.Now()) {
		p.endLogin() // CLIENT KILL, or the upstream's timeout for clients
	}
}

// endLogin ends a session as the upstream has ended its home.
func (p *Pipe) endLogin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose(ErrClosed)
	p.out.finish()
	p.room.Broadcast()
}

// maxCheck bounds how long whoServes asks.
const maxCheck = time.Second

// serving is what stillServes found last.
type serving struct {
	mu   sync.Mutex
	at   time.Time // guarded by mu; when it began to ask
	addr string    // guarded by mu; who answered; "" for nobody
}

// aroundLoss is how close together connections end that are lost for one reason.
const aroundLoss = 100 * time.Millisecond

// closedAlone reports whether the upstream at addr has closed one connection rather than all: it
// answers, and no lane has ended at about the same time.
func (ls *Lanes) closedAlone(addr net.Addr, ended time.Time) bool {
	if !ls.stillServes(addr, ended) {
		return false
	}
	select {
	case <-time.After(aroundLoss - time.Since(ended)):
	case <-ls.ctx.Done():
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.laneLost.Before(ended.Add(-aroundLoss))
}

// stillServes reports whether the upstream at addr answers. Those whose connections ended before
// somebody began to ask share the answer.
func (ls *Lanes) stillServes(addr net.Addr, ended time.Time) bool {
	s := &ls.serving
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.After(ended) {
		s.at, s.addr = time.Now(), ls.whoServes()
	}
	return s.addr != "" && s.addr == addr.String()
}

// whoServes is the address of the server that answers, or "".
func (ls *Lanes) whoServes() string {
	if ls.upstream.IsCluster() {
		return "" // the end of a node's connection is no end of a home
	}
	ctx, cancel := context.WithTimeout(ls.ctx, min(maxCheck, ls.dialTimeout))
	defer cancel()
	conn, err := ls.upstream.DialAdmitted(ctx, ls.upstream.Initial)
	var refused *upstream.Refused
	switch {
	case err == nil:
		defer conn.Close()
		return conn.RemoteAddr().String()
	case errors.As(err, &refused):
		return refused.Addr
	}
	return ""
}
