package passthrough

// Requests whose connection was lost are answered here.

import (
	"errors"
	"math"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
	"lockproxy/internal/upstream"
)

// ErrClosed is the outcome of requests when the proxy has closed the Pipe.
var ErrClosed = errors.New("connection closed")

// neverSent is the outcome of a request after the loss. mu is held.
func (c *client) neverSent() error {
	if lost, ok := c.lost.(*upstream.Error); ok {
		return &upstream.Error{Addr: lost.Addr, Err: lost.Err}
	}
	if c.lost == nil { // only the home is lost
		return &upstream.Error{Addr: c.pool.Upstream.Addr, Err: errClosedByUpstream}
	}
	return c.lost
}

// mayHaveRun is the outcome of a request that was sent, and is lost because of err.
func (c *client) mayHaveRun(err error) *upstream.Error {
	return &upstream.Error{Addr: c.pool.Upstream.Addr, Sent: true, Err: err}
}

// expectLocked adds what the client is owed by its home. On a lost one it answers. mu is held.
func (c *client) expectLocked(e pendingReply) {
	c.pending.push(e)
	if e.Effect == commands.Quit {
		c.end = max(c.end, WhenAnswered)
	}
	switch {
	case c.route == gone:
		c.loseUpstream(c.lost)
	// without it, what follows may mean something else
	case c.route == dropped && e.Effect != commands.NoEffect:
		text, awaited := c.loseUpstream(c.neverSent())
		if !awaited {
			c.end = max(c.end, WhenAnswered)
		}
		c.sendLocked(text)
	case c.route == dropped:
		text, _ := c.failNext(nil, math.MaxInt, math.MaxInt, c.neverSent())
		c.sendLocked(text)
	default:
		c.needsHome.large = max(0, c.needsHome.large-e.replies())
	}
}

// homeLostLocked answers what is still owed after the home has ended, or a lane that owes more than
// maxLost replies, and closes the client. If the session waits for an Answer, the session closes
// the client: see Status. mu is held.
func (c *client) homeLostLocked(err error, withinReply bool) {
	if c.route == gone {
		return
	}
	if c.end >= ClientGone {
		// The client would take a reply of the session for one that is missing.
		if missing, awaited := c.loseUpstream(ErrClosed); !awaited || len(missing) > 0 {
			c.out.finish()
		}
	} else {
		text, awaited := c.loseUpstream(c.mayHaveRun(err))
		if withinReply {
			text = nil
		}
		c.out.conn.SetWriteDeadline(time.Now().Add(Linger))
		if !awaited { // otherwise the session replies and closes
			c.end = WhenAnswered
		}
		c.sendLocked(text)
	}
	c.room.Broadcast()
}

// laneLost answers requests whose lane has ended: first those that may have run, then those that
// were never sent. The session goes on, unless the client has got only a part of a reply, or they
// are too many.
func (c *client) laneLost(err error, mayHaveRun, unsent int, withinReply bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.laneLostLocked(err, mayHaveRun, unsent, withinReply)
}

// laneLostLocked is laneLost with mu held.
func (c *client) laneLostLocked(err error, mayHaveRun, unsent int, withinReply bool) {
	c.inFlight -= mayHaveRun + unsent
	if c.route == gone {
		return
	}
	if mayHaveRun+unsent > maxLost {
		c.homeLostLocked(err, withinReply)
		return
	}
	lost := c.mayHaveRun(err)
	text, _ := c.failNext(nil, mayHaveRun, math.MaxInt, lost)
	text, _ = c.failNext(text, unsent, math.MaxInt, &upstream.Error{Addr: lost.Addr, Err: err})
	if withinReply {
		c.loseUpstream(lost)
		c.out.conn.Close()
		text = nil
	}
	c.within = false
	c.sendLocked(text)
	c.room.Broadcast()
}

// loseUpstream makes the route gone, and empties the pending queue. It returns what failNext does.
// mu is held.
func (c *client) loseUpstream(err error) (text []byte, awaited bool) {
	if c.route != gone {
		c.lost = err
		c.setRoute(gone)
	}
	text, awaited = c.failNext(nil, math.MaxInt, maxLostText, c.lost)
	c.pending.shown()
	return text, awaited
}

// breakOff disconnects the client after a panic in what runs for it alone.
func (c *client) breakOff(fault *panics.Panic) {
	loopguard.MayWait()
	panics.Free(&c.mu, fault)
	c.pool.OnPanic(c.out.conn.RemoteAddr(), fault)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loseUpstream(ErrClosed)
	c.out.conn.Close() // its session ends
	c.room.Broadcast()
}

const (
	// maxLost is how many requests of a client can be lost together without its connection.
	maxLost = 16 << 10
	// maxLostText bounds the replies to requests that were lost with the connection, bytes.
	maxLostText = 64 << 10
)

// failNext fails the next n requests with err, and what waits for nothing but them. It appends the
// replies for the client to text, up to a limit of bytes, and reports whether the session waits for
// an Answer. QUIT and SHUTDOWN, and what follows them, get no reply: the close is Redis's answer.
// mu is held.
func (c *client) failNext(text []byte, n, limit int, err error) (all []byte, awaited bool) {
	silent := false
	for e := c.pending.head(); e != nil && (n > 0 || !e.awaitsReply()); e = c.pending.head() {
		if e.awaitsReply() {
			n--
		}
		silent = silent || e.Effect == commands.Quit || e.Effect == commands.Closes ||
			e.Effect == commands.Replicate
		switch {
		case e.answer != nil:
			awaited = true
			e.answer.fail(err)
		case silent || len(text) >= limit || c.pending.Muted():
		case e.kind == local:
			text = append(text, e.local...)
		case e.kind == relayed || e.kind == overridden:
			text = append(text, c.encodeError(err)...)
		}
		if e.count--; e.count <= 0 {
			c.pending.pop()
		}
	}
	return text, awaited
}
