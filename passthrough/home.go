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
	*client
	conn        net.Conn
	rw          io.ReadWriter           // conn's bytes
	socket      *socket.Socket          // conn's; nil if way isn't that
	reg         *eventloop.Registration // nil if no event loop reads it
	ended       chan struct{}           // closed when nobody reads any more
	closing     bool                    // guarded by mu; the upstream has been told that nothing more is asked
	replies     demux
	partialPush []byte // guarded by mu; the beginning of a push that comes while replies come by the lane
	failed      error  // what ended the event loop's reading
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
	h.pool.homes.Add(-1)
	close(h.ended)
}

// copyReplies returns why the connection ended, or nil once an event loop reads it.
func (h *home) copyReplies() error {
	h.out.waitBelow(0)
	for buf := make([]byte, minBuf); ; {
		n, err := h.rw.Read(buf)
		if n > 0 {
			if err := h.deliver(buf[:n]); err != nil {
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
		h.failed = h.deliver(buf[:n])
	}
	unread, _, _ := h.out.status()
	switch {
	case h.failed != nil, h.replies.large(), unread:
		return eventloop.Leave
	case n == len(buf):
		return eventloop.Again
	}
	return eventloop.Stay
}

// pass gives the client its part of what was read. What comes next waits at the upstream, which has
// limits for it, until the client has taken that: see clientWriter.waitBelow.
func (h *home) deliver(data []byte) (err error) {
	r := &h.replies
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.route == gone:
		return nil
	case h.route == byLane:
		return h.deliverPushes(data)
	case h.home == h && h.homeUse == unneeded:
		h.homeUse = recent
	}
	begun := h.partialPush
	h.partialPush = nil
	_, _, err = r.cut(h.client, data, -1)
	if len(begun) > 0 {
		r.out = append([][]byte{begun}, r.out...)
	}
	if r.size > largeReply {
		h.needsHome.large = largeFor
	}
	h.within = r.within() || h.pending.Streaming
	if change := h.pending.pauses; change.made {
		h.pool.pause(change.lasts)
		h.pending.pauses = pauseChange{}
	}
	if h.end >= ClientGone {
		h.conn.SetReadDeadline(time.Now().Add(linger))
	}
	h.sendLocked(r.out...)
	h.room.Signal()
	if _, _, gone := h.out.status(); gone != nil && err == nil {
		err = errors.Join(errors.New("client is gone"), gone)
	}
	return err
}

// takeUnasked takes what comes by the home while replies come by the lane: pushes, or what Redis
// says before it closes. The client is given each whole, between two replies. mu is held.
func (h *home) deliverPushes(data []byte) error {
	r := &h.replies
	r.dest, r.undecided = relayed, false
	for len(data) > 0 {
		n, done, err := r.scan.Scan(data)
		if err != nil {
			return err
		}
		h.partialPush = append(h.partialPush, data[:n]...)
		data = data[n:]
		if len(h.partialPush) > maxPushes || done && !h.pushLocked(h.partialPush) {
			return errors.New("the upstream sends more by a client's own connection than it was asked for")
		}
		if done {
			h.partialPush = nil
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
	if h.pending.effects > 0 && !onLane || withinReply || h.end >= ClientGone || h.needsHome.open || h.needsHome.pinned || !h.pending.replaceable() {
		h.mu.Unlock()
		h.homeLost(err, withinReply)
		return
	}
	h.home, h.homeUse, h.writes = nil, recent, Unknown
	if !onLane {
		h.setRoute(dropped)
		lost := &upstream.Error{Addr: h.pool.upstream.Addr, Sent: true, Err: err}
		h.sendLocked(h.failNext(nil, math.MaxInt, lost))
		h.room.Broadcast()
	}
	h.mu.Unlock()
	if !h.pool.closedAlone(h.conn.RemoteAddr(), time.Now()) {
		return
	}
	h.mu.Lock() // CLIENT KILL, or the upstream's timeout for clients
	defer h.mu.Unlock()
	h.client.loseUpstream(ErrClosed)
	h.out.finish()
	h.room.Broadcast()
}
