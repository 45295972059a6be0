package passthrough

// What becomes of what a client is owed when the connection is lost by which that was to come.

import (
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/upstream"
)

// neverSent is the outcome of a request that comes when the Pipe is lost. mu is held.
func (c *client) neverSent() error {
	if lost, ok := c.lost.(*upstream.Error); ok {
		return &upstream.Error{Addr: lost.Addr, Err: lost.Err}
	}
	if c.lost == nil { // but the home is
		return &upstream.Error{Addr: c.pool.Upstream.Addr, Err: errClosedByUpstream}
	}
	return c.lost
}

// finish answers what is still owed after the session's own connection has ended, and closes the
// client, unless the session waits for an Answer: then that is for the session to do: see Status.
func (c *client) homeLost(err error, withinReply bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.route == gone {
		return
	}
	if c.end >= ClientGone {
		if _, awaited := c.loseUpstream(ErrClosed); !awaited {
			c.out.finish()
		}
	} else {
		text, awaited := c.loseUpstream(&upstream.Error{Addr: c.pool.Upstream.Addr, Sent: true, Err: err})
		if withinReply {
			text = nil
		}
		c.out.conn.SetWriteDeadline(time.Now().Add(time.Second))
		if !awaited { // else the session has something to say, and closes
			c.end = WhenAnswered
		}
		c.sendLocked(text)
	}
	c.room.Broadcast()
}

// lose ends the session's way to the upstream, for good. It returns what to tell the client, and
// whether an Answer was among what was owed. mu is held.
func (c *client) loseUpstream(err error) (text []byte, awaited bool) {
	if c.route != gone {
		c.lost = err
		c.setRoute(gone)
	}
	return c.failAll()
}

// maxLostText bounds what is said about requests that were lost together, bytes.
const maxLostText = 64 << 10

// settleLost empties the pending queue of a lost connection, with mu held, and returns what to tell the
// client, and whether an Answer was among it. Nothing is said for QUIT and SHUTDOWN, nor behind
// them: the upstream closes by way of answer.
func (c *client) failAll() (text []byte, awaited bool) {
	silent := false
	for e := c.pending.head(); e != nil; e = c.pending.head() {
		if e.answer != nil {
			awaited = true
			e.answer.err = c.lost
			close(e.answer.Done)
		}
		if e.Effect == commands.Quit || e.Effect == commands.Closes || e.Effect == commands.Replicate {
			silent = true
		}
		for ; e.count > 0 && !silent && len(text) < maxLostText && !c.pending.muted(); e.count-- {
			switch {
			case e.kind == local:
				text = append(text, e.local...)
			case (e.kind == relayed || e.kind == overridden) && e.Effect != MaybeUnanswered:
				text = append(text, c.encodeError(c.lost)...)
			}
		}
		c.pending.pop()
	}
	return text, awaited
}

// settle answers n requests with err, appending to text what the client is told. mu is held.
func (c *client) failNext(text []byte, n int, err error) []byte {
	l := &c.pending
	for ; n > 0 && !l.empty(); n-- {
		e := l.head()
		switch {
		case e.answer != nil:
			e.answer.err = err
			close(e.answer.Done)
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
