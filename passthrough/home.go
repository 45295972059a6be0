package passthrough

// A session's home: the upstream connection of its own. Whatever depends on a connection happens
// there.

import (
	"errors"
	"io"
	"math"
	"net"
	"syscall"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/socket"
	"lockproxy/internal/upstream"
)

// home reads the replies that come by a session's home.
type home struct {
	*owed
	conn    net.Conn
	way     io.ReadWriter           // conn's bytes
	socket  *socket.Socket          // conn's; nil if way isn't that
	reg     *eventloop.Registration // nil if no event loop reads it
	ended   chan struct{}           // closed when nobody reads any more
	closing bool                    // guarded by mu; the upstream has been told that nothing more is asked
	replies replyReader
	unasked []byte // guarded by mu; the beginning of a push that comes while replies come by the lane
	failed  error  // what ended the event loop's reading
}

// close ends the connection. It may be called from any goroutine.
func (h *home) close() {
	h.conn.Close()
	h.reg.Wake()
}

// Resume brings replies until the connection ends, or an event loop brings them.
func (h *home) Resume() {
	err := h.failed
	if err == nil {
		if err = h.copyReplies(); err == nil {
			return // it is parked, and belongs to the loop
		}
	}
	h.reg.Unregister()
	h.conn.Close()
	h.reportLoss(err)
	h.lanes.homes.Add(-1)
	close(h.ended)
}

// copyReplies returns why the connection ended, or nil once an event loop reads it.
func (h *home) copyReplies() error {
	h.out.waitBelow(0)
	for buf := make([]byte, minBuf); ; {
		n, err := h.way.Read(buf)
		if n > 0 {
			if err := h.pass(buf[:n]); err != nil {
				return err
			}
			h.out.waitBelow(0)
		}
		if errors.Is(err, io.EOF) {
			return errClosedByUpstream
		}
		if err != nil {
			return err
		}
		if n < len(buf) && !h.replies.large() && h.park() {
			return nil
		}
		if h.failed != nil {
			return h.failed
		}
		if n == len(buf) && n < bufSize {
			buf = make([]byte, 2*n)
		}
	}
}

// park leaves the reading to an event loop, if one can read the connection and nothing has come that
// it cannot deal with.
func (h *home) park() bool {
	return h.reg.Park()
}

// Ready gives the client what has come, unless it leaves so much unread that it must be waited for.
func (h *home) Ready(it *eventloop.Iteration) eventloop.Next {
	buf := it.Buffer(laneBuf)
	n, err := h.socket.TryRead(buf)
	switch {
	case err == syscall.EAGAIN:
		return eventloop.Stay
	case err == io.EOF:
		h.failed = errClosedByUpstream
	case err != nil:
		h.failed = err
	default:
		h.failed = h.pass(buf[:n])
	}
	switch {
	case h.failed != nil, h.replies.large(), h.out.unread():
		return eventloop.Leave
	case n == len(buf):
		return eventloop.Again
	}
	return eventloop.Stay
}

// pass gives the client its part of what was read. What comes next waits at the upstream, which has
// limits for it, until the client has taken that: see outbox.waitBelow.
func (h *home) pass(data []byte) (err error) {
	r := &h.replies
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.route == gone:
		return nil
	case h.route == byLane:
		return h.takeUnasked(data)
	case h.home == h && h.need == unneeded:
		h.need = recent
	}
	begun := h.unasked
	h.unasked = nil
	_, _, err = r.sort(h.owed, data, -1)
	if len(begun) > 0 {
		r.out = append([][]byte{begun}, r.out...)
	}
	if r.size > largeReply {
		h.stay.large = largeFor
	}
	h.within = r.within() || h.ledger.Raw
	if change := h.ledger.pauses; change.made {
		h.lanes.pause(change.lasts)
		h.ledger.pauses = pauseChange{}
	}
	if h.end >= ClientGone {
		h.conn.SetReadDeadline(time.Now().Add(linger))
	}
	h.giveLocked(r.out...)
	h.room.Signal()
	if gone := h.out.err(); gone != nil && err == nil {
		err = errors.Join(errors.New("client is gone"), gone)
	}
	return err
}

// takeUnasked takes what comes by the home while replies come by the lane: pushes, or what Redis
// says before it closes. The client is given each whole, between two replies. mu is held.
func (h *home) takeUnasked(data []byte) error {
	r := &h.replies
	r.dest, r.feed = relayed, false
	for len(data) > 0 {
		n, done, err := r.scan.Scan(data)
		if err != nil {
			return err
		}
		h.unasked = append(h.unasked, data[:n]...)
		data = data[n:]
		if len(h.unasked) > maxPushes || done && !h.pushLocked(h.unasked) {
			return errors.New("the upstream sends more by a client's own connection than it was asked for")
		}
		if done {
			h.unasked = nil
		}
	}
	return nil
}

// reportLoss does what the end of the session's home asks for. The session goes on, with another
// home, if this one was as a new connection but for the replies that are owed; otherwise it ends,
// as the client's own connection to the upstream would.
func (h *home) reportLoss(err error) {
	h.mu.Lock()
	onLane := h.route == byLane
	withinReply := !onLane && h.replies.within()
	switch {
	case h.home != h, h.route == gone: // it was closed because nothing needed it, or the session has ended
		h.mu.Unlock()
		return
	case h.end >= ClientGone && onLane:
		h.home = nil // replies to come by the lane are still given to the client
		h.mu.Unlock()
		return
	}
	if h.ledger.effects > 0 && !onLane || withinReply || h.end >= ClientGone || h.stay.begun || h.stay.pinned || !h.ledger.replaceable() {
		h.mu.Unlock()
		h.finish(err, withinReply)
		return
	}
	h.home, h.need, h.writes = nil, recent, Unknown
	if !onLane {
		h.setRoute(dropped)
		lost := &upstream.Error{Addr: h.lanes.upstream.Addr, Sent: true, Err: err}
		h.giveLocked(h.settle(nil, math.MaxInt, lost))
		h.room.Broadcast()
	}
	h.mu.Unlock()
	if !h.lanes.closedAlone(h.conn.RemoteAddr(), time.Now()) {
		return
	}
	h.mu.Lock() // CLIENT KILL, or the upstream's timeout for clients
	defer h.mu.Unlock()
	h.owed.lose(ErrClosed)
	h.out.finish()
	h.room.Broadcast()
}
