package passthrough

// What becomes of what a client is owed when the connection is lost by which that was to come.

import (
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/upstream"
)

// neverSent is the outcome of a request that comes when the Pipe is lost. mu is held.
func (o *owed) neverSent() error {
	if lost, ok := o.lost.(*upstream.Error); ok {
		return &upstream.Error{Addr: lost.Addr, Err: lost.Err}
	}
	if o.lost == nil { // but the home is
		return &upstream.Error{Addr: o.lanes.upstream.Addr, Err: errClosedByUpstream}
	}
	return o.lost
}

// finish answers what is still owed after the session's own connection has ended, and closes the
// client, unless the session waits for an Answer: then that is for the session to do: see Status.
func (o *owed) finish(err error, withinReply bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.route == gone {
		return
	}
	if o.end >= ClientGone {
		if _, awaited := o.lose(ErrClosed); !awaited {
			o.out.finish()
		}
	} else {
		text, awaited := o.lose(&upstream.Error{Addr: o.lanes.upstream.Addr, Sent: true, Err: err})
		if withinReply {
			text = nil
		}
		o.out.conn.SetWriteDeadline(time.Now().Add(time.Second))
		if !awaited { // else the session has something to say, and closes
			o.end = WhenAnswered
		}
		o.giveLocked(text)
	}
	o.room.Broadcast()
}

// lose ends the session's way to the upstream, for good. It returns what to tell the client, and
// whether an Answer was among what was owed. mu is held.
func (o *owed) lose(err error) (text []byte, awaited bool) {
	if o.route != gone {
		o.lost = err
		o.setRoute(gone)
	}
	return o.settleLost()
}

// maxLostText bounds what is said about requests that were lost together, bytes.
const maxLostText = 64 << 10

// settleLost empties the ledger of a lost connection, with mu held, and returns what to tell the
// client, and whether an Answer was among it. Nothing is said for QUIT and SHUTDOWN, nor behind
// them: the upstream closes by way of answer.
func (o *owed) settleLost() (text []byte, awaited bool) {
	silent := false
	for e := o.ledger.head(); e != nil; e = o.ledger.head() {
		if e.answer != nil {
			awaited = true
			e.answer.err = o.lost
			close(e.answer.Done)
		}
		if e.Effect == commands.Quit || e.Effect == commands.Closes || e.Effect == commands.Replicate {
			silent = true
		}
		for ; e.count > 0 && !silent && len(text) < maxLostText && !o.ledger.muted(); e.count-- {
			switch {
			case e.kind == local:
				text = append(text, e.local...)
			case (e.kind == relayed || e.kind == replaced) && e.Effect != Uncertain:
				text = append(text, o.encode(o.lost)...)
			}
		}
		o.ledger.pop()
	}
	return text, awaited
}

// settle answers n requests with err, appending to text what the client is told. mu is held.
func (o *owed) settle(text []byte, n int, err error) []byte {
	l := &o.ledger
	for ; n > 0 && !l.empty(); n-- {
		e := l.head()
		switch {
		case e.answer != nil:
			e.answer.err = err
			close(e.answer.Done)
		case e.kind == relayed || e.kind == replaced:
			text = append(text, o.encode(err)...)
		}
		if e.count--; e.count == 0 {
			l.pop()
		}
		for e, ok := l.ready(); ok; e, ok = l.ready() {
			if e.answer != nil {
				close(e.answer.Done)
			}
			text = append(text, e.local...)
		}
	}
	return text
}
