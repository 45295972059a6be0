package passthrough

// A session's home: its own upstream connection.

import (
	"errors"
	"math"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/panics"
)

// home is the receiving side of a session's own upstream connection.
type home struct {
	c *client
	connReader
	phase   homePhase     // guarded by mu; changed by becomes
	heardAt int64         // guarded by mu; when it last gave the client something, as monotonic.Now
	id      int64         // guarded by mu; its number at Redis, 0 while it is unknown
	asked   chan struct{} // guarded by mu; closed once id is known; nil if it is not asked for
	given   spare         // guarded by mu; what it was, or what the pool gets if it is left
	// Only the reader: pushes that came while the lane replied, the last one perhaps in part.
	early []byte
	said  firstWords // only the reader
}

// homePhase is what becomes of a home.
type homePhase uint8

const (
	recent   homePhase = iota // used since the last closeIdle
	held                      // about to be used
	unneeded                  // not used since
	left                      // the pool has others use it, once its reader has left
	closing                   // the upstream knows that nothing more will be asked
)

// becomes changes the phase of a home that is the client's. mu is held.
func (h *home) becomes(phase homePhase) {
	if h != nil && h.phase < left {
		h.phase = phase
	}
}

// firstWords is what a new connection has said so far. An error and nothing else, before the end,
// is how Redis refuses a connection: there are too many, say. Nothing follows a protocol error.
type firstWords uint8

const (
	nothing firstWords = iota
	oneError
	more
)

// Consume gives the client what was read. Redis, which has limits for it, keeps what follows until
// the client has read that: see clientWriter.waitBelow.
func (h *home) Consume(data []byte, _ *eventloop.Iteration) (err error) {
	defer panics.Contain(&err)
	for len(data) > 0 && err == nil {
		data, err = h.deliver(data)
	}
	return err
}

// deliver gives the client the front of what was read, and returns the rest.
func (h *home) deliver(data []byte) (rest []byte, err error) {
	r := &h.replies
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	switch {
	case h.phase == left: // nothing was asked
		return nil, errUnasked
	case h.c.route == gone:
		return nil, nil
	case h.c.route == byLane:
		return nil, h.deliverPushes(data)
	case h.phase == unneeded:
		h.becomes(recent)
	}
	h.heardAt = monotonic.Now()
	if r.atBatch(&h.c.pending, data) {
		first := h.c.pending.head().answer
		if data, err = r.openBatch(data, first.calls); !r.opening() {
			first.calls = 0
		}
		return data, err
	}
	n, replies, err := r.cut(&h.c.pending, data, math.MaxInt)
	switch {
	case err == errUnasked && data[n] == '-': // as directly: the client is told, and closed
		r.out = append(r.out, data[n:])
	case replies > 0 && r.scan.Head().IsError() &&
		(replies == 1 && h.said == nothing || begins(r.scan.Head(), "ERR Protocol error")):
		h.said = oneError
	case replies > 0:
		h.said = more
	}
	if len(h.early) > 0 {
		r.out = append([][]byte{h.early}, r.out...)
		h.early = nil
	}
	if r.size > largeReply {
		h.c.needsHome.large = largeFor
	}
	h.c.within = r.within() || h.c.pending.Has(Streaming)
	if change := h.c.pending.pauses; change.made {
		if change.lasts < 0 {
			h.c.pool.sharing.unpause()
		} else {
			h.c.pool.sharing.pause(change.lasts)
		}
		h.c.pending.pauses = pauseChange{}
	}
	if h.c.end >= ClientGone {
		h.Conn.SetReadDeadline(time.Now().Add(Linger))
	}
	h.c.sendLocked(r.out...)
	r.forget()
	h.c.room.Broadcast()
	if _, _, gone := h.c.out.status(); gone != nil && err == nil {
		err = errors.Join(errors.New("client is gone"), gone)
	}
	return data[n:], err
}

// deliverPushes takes what comes by the home while the lane replies. The client gets each push as a
// whole, between two replies. mu is held.
func (h *home) deliverPushes(data []byte) error {
	r := &h.replies
	r.dest, r.undecided = relayed, false
	for len(data) > 0 {
		if !r.scan.Began() {
			if data[0] != '>' {
				return errUnasked
			}
			r.size = 0
		}
		n, done, err := r.scan.Scan(data)
		if err != nil {
			return err
		}
		r.size += n
		h.early = append(h.early, data[:n]...)
		data = data[n:]
		if done && h.c.pushLocked(h.early) {
			h.early = nil
		}
	}
	return nil
}

// MustWait reports whether the client leaves replies unread, or more pushes than are kept wait for
// the lane's replies. A large reply is read by a goroutine.
func (h *home) MustWait() bool {
	unread, _, _ := h.c.out.status()
	return unread || len(h.early) > maxPushes || h.replies.large()
}

// Wait waits until the client has read its replies and, if there are too many pushes, until the
// lane has replied. Then the home replies, so the client gets the pushes without waiting for their
// end.
func (h *home) Wait() {
	loopguard.MayWait()
	h.c.out.waitBelow(0)
	if len(h.early) <= maxPushes {
		return
	}
	h.c.mu.Lock()
	defer h.c.mu.Unlock()
	for h.c.home == h && h.c.route == byLane && !h.c.setRoute(byHome) {
		h.c.room.Wait()
	}
	if h.c.home == h && h.c.route == byHome {
		h.c.within = h.replies.within()
		h.c.out.send(h.early)
	}
	h.early = nil
}

// connEnded is for connReader.
func (h *home) connEnded(err error) {
	if err != eventloop.ErrLeft {
		h.reportLoss(err)
	}
	h.c.mu.Lock()
	given, leaves := h.given, h.phase == left
	h.numberedLocked(unknowable)
	h.c.mu.Unlock()
	if leaves {
		h.c.pool.giveBack(given, err == eventloop.ErrLeft)
	}
	h.c.pool.homes.open.Add(-1)
	close(h.ended)
	h.c.mu.Lock()
	h.c.room.Broadcast() // Settle may wait
	h.c.mu.Unlock()
}

// reportLoss handles the end of the home. If the client did not need it, another is opened when it
// does. If Redis has closed it alone, it closes the client. If the home was in the state of a new
// connection, except for missing replies, the session goes on with another home. Otherwise it ends,
// as the client's connection would without the proxy.
func (h *home) reportLoss(err error) {
	c, ended := h.c, time.Now()
	if fault := panics.In(err); fault != nil {
		c.breakOff(fault)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	asksFirst := c.home == h && c.route == byHome && c.pending.relaysOnly() &&
		c.end < WhenAnswered && h.said != oneError
	if asksFirst && h.closedAlone(ended) {
		// Redis answers none of these if it closes the client. Requests that were sent meanwhile
		// are lost too.
		c.closeLocked(c.mayHaveRun(err))
		return
	}
	onLane := c.route == byLane
	withinReply := !onLane && h.replies.within()
	replaceable := c.end < WhenAnswered && !withinReply && (onLane || c.pending.effects == 0) &&
		!c.needsHome.open && !c.needsHome.pinned && c.pending.replaceable() &&
		(onLane || c.pending.replies() <= maxLost)
	switch {
	case c.home != h, c.route == gone: // closeIdle has closed it, or the session has ended
	case !onLane && (err == errUnasked || err == errSetUp || h.said == oneError):
		c.closeLocked(c.mayHaveRun(err))
	case c.end >= WhenAnswered && onLane:
		c.home = nil // the client still gets the lane's replies
	case onLane && h.isSpareLocked():
		c.home, c.writes = nil, Unknown
		if c.pending.own() && h.unlocked(func() bool { return c.pool.laneEnded(ended) }) {
			c.homeLostLocked(err, false) // Redis has ended this user's connections
		}
	case !replaceable:
		c.homeLostLocked(err, withinReply)
	default:
		idle := h.wasIdleLocked()
		c.home, c.writes = nil, Unknown
		if !onLane {
			c.setRoute(dropped)
			text, _ := c.failNext(nil, math.MaxInt, math.MaxInt, c.mayHaveRun(err))
			c.sendLocked(text)
			c.room.Broadcast()
		}
		if !asksFirst && (idle || h.closedAlone(ended)) {
			c.closeLocked(ErrClosed)
		}
	}
}

// closedAlone is Pool.closedAlone of the home. The client's mu is held, but not while it waits.
func (h *home) closedAlone(ended time.Time) bool {
	addr := h.given.server.Addr
	return h.unlocked(func() bool { return h.c.pool.closedAlone(addr, ended) })
}

func (h *home) unlocked(ask func() bool) bool {
	h.c.mu.Unlock()
	defer h.c.mu.Lock()
	return ask()
}

// wasIdleLocked reports whether the home was silent for so long that Redis has closed it for that,
// if it closes idle clients. Most of its timeout is enough: see Pool.spareLife. mu is held.
func (h *home) wasIdleLocked() bool {
	timeout := time.Duration(h.c.pool.sharing.timeout.Load())
	return timeout > 0 && h.c.pending.empty() && monotonic.Since(h.heardAt) >= timeout/2
}

// spareAfter is for how long a home must have been silent, while its client uses a lane, to be one
// that the client does not need. A middlebox between the proxy and Redis can cut connections that
// are silent for longer.
const spareAfter = time.Second

// isSpareLocked reports whether the client, which uses a lane, does not need the home, and a new
// one can take its place when it does. mu is held.
func (h *home) isSpareLocked() bool {
	return monotonic.Since(h.heardAt) >= spareAfter && !h.c.needsHome.any() &&
		h.c.end < WhenAnswered && !h.c.pending.Has(unlikeNew|knownID)
}

// closeLocked closes the client without a reply, since Redis has closed its home: by CLIENT KILL,
// by its timeout for clients, or because it lets none in. err is the outcome of requests. The
// session then closes the home. mu is held.
func (c *client) closeLocked(err error) {
	c.loseUpstream(err)
	c.out.finish()
	c.room.Broadcast()
}

// closeHomeLocked closes the sending side of the home. mu is held.
func (c *client) closeHomeLocked() {
	if c.home == nil || c.home.phase == closing {
		return
	}
	c.home.becomes(closing) // a second close could fail while replies are left to read
	c.home.Conn.SetReadDeadline(time.Now().Add(Linger))
	if half, ok := c.home.Conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		c.home.Conn.Close()
	}
	c.home.Reg.Wake() // a goroutine must read it: the loop knows no deadline
}

// numberedLocked notes the home's number, unless that is known. mu is held.
func (h *home) numberedLocked(n int64) {
	if h.id == 0 {
		h.id = n
	}
	if h.asked != nil {
		close(h.asked)
		h.asked = nil
	}
}
