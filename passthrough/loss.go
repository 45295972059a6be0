package passthrough

// Requests whose connection was lost are answered here.

import (
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
	"lockproxy/internal/upstream"
)

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

// homeLost answers what is still owed after the home has ended, and closes the client. If the
// session waits for an Answer, the session closes the client: see Status.
func (c *client) homeLost(err error, withinReply bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.homeLostLocked(err, withinReply)
}

// homeLostLocked is homeLost, also for a lane that owes more than maxLost replies. mu is held.
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
		text, awaited := c.loseUpstream(&upstream.Error{Addr: c.pool.Upstream.Addr, Sent: true,
			Err: err})
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

// loseUpstream makes the route gone. It returns the replies for the client, and whether the session
// waits for an Answer. mu is held.
func (c *client) loseUpstream(err error) (text []byte, awaited bool) {
	if c.route != gone {
		c.lost = err
		c.setRoute(gone)
	}
	return c.failAll()
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

// failAll empties the pending queue. It returns the replies for the client, and whether the session
// waits for an Answer. QUIT and SHUTDOWN, and what follows them, get no reply: the close is Redis's
// answer. mu is held.
func (c *client) failAll() (text []byte, awaited bool) {
	silent := false
	for e := c.pending.head(); e != nil; e = c.pending.head() {
		if e.answer != nil {
			awaited = true
			e.answer.fail(c.lost)
		}
		if e.Effect == commands.Quit || e.Effect == commands.Closes ||
			e.Effect == commands.Replicate {
			silent = true
		}
		for ; e.count > 0 && !silent && len(text) < maxLostText && !c.pending.Muted(); e.count-- {
			switch {
			case e.kind == local:
				text = append(text, e.local...)
			case e.kind == relayed || e.kind == overridden:
				text = append(text, c.encodeError(c.lost)...)
			}
		}
		c.pending.pop()
	}
	c.pending.shown()
	return text, awaited
}

// failNext fails the next n requests with err, and appends the replies for the client to text. mu
// is held.
func (c *client) failNext(text []byte, n int, err error) []byte {
	l := &c.pending
	for ; n > 0 && !l.empty(); n-- {
		e := l.head()
		switch {
		case e.answer != nil:
			e.answer.fail(err)
		case e.kind == relayed || e.kind == overridden:
			text = append(text, c.encodeError(err)...)
		}
		if e.count--; e.count == 0 {
			l.pop()
		}
		for e, ok := l.popReady(); ok; e, ok = l.popReady() {
			if e.answer != nil {
				close(e.answer.Done)
			}
			text = append(text, e.local...)
		}
	}
	return text
}
