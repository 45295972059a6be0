package passthrough

// How a Pipe ends: because its client is owed nothing more, because the client has gone, or because the upstream has.

import (
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/upstream"
)

// Status is what a session has to know of its Pipe besides State.
type Status struct {
	Lost      bool   // what the session needs has ended at the upstream: it must end then, WhenAnswered
	Owes      bool   // the client is owed something that it is to see
	Answered  bool   // the client is owed nothing, and has been given all
	Given     uint64 // how many bytes the client has been given, though it may not have taken them
	ClientErr error  // why something could not be given to the client, nor what is behind it; nil if all was
	Writes    Writes
}

// Status returns it as of this moment.
func (p *Pipe) Status() (s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Lost, s.Writes = p.route == gone, p.writes
	s.Owes = p.within || p.ledger.owes()
	var unread bool
	unread, s.Given, s.ClientErr = p.out.status()
	s.Answered = p.nothingOwed() && !unread
	return s
}

// neverSent is the outcome of a request that comes when the Pipe is lost. mu is held.
func (p *Pipe) neverSent() error {
	if lost, ok := p.lost.(*upstream.Error); ok {
		return &upstream.Error{Addr: lost.Addr, Err: lost.Err}
	}
	if p.lost == nil { // but the home is
		return &upstream.Error{Addr: p.lanes.upstream.Addr, Err: errClosedByUpstream}
	}
	return p.lost
}

// End has the session's part in upstream connections end:
//
//   - WhenAnswered: the client is closed as soon as nothing is owed to it.
//   - ClientGone: the client has closed its side. The home is told in the same way, so that the upstream
//     finishes what it was sent, gives up what blocks, and closes: then Wait returns. What was asked by a
//     lane is answered first.
//   - AtOnce: it may be called from any goroutine, at any time, more than once.
func (p *Pipe) End(when Ending) {
	if when != AtOnce {
		p.Flush()
	}
	p.mu.Lock()
	p.end = max(p.end, when)
	lane := p.lane
	switch when {
	case WhenAnswered:
		p.giveLocked()
	case ClientGone:
		p.clientGone()
	case AtOnce:
		p.lose(ErrClosed)
		if p.home != nil {
			p.home.close()
		}
		p.room.Broadcast()
	}
	p.mu.Unlock()
	if when == AtOnce && lane != nil {
		lane.wakeWaiting()
	}
}

func (p *Pipe) nothingOwed() bool { return p.ledger.empty() || p.route == gone }

// giveLocked gives the client pieces and, between two replies, the pushes that had to wait. It closes the client with them if that
// was all that is owed to it. mu is held.
func (p *Pipe) giveLocked(pieces ...[]byte) {
	if !p.within && len(p.pushes) > 0 {
		pieces = append(pieces, p.pushes)
		p.pushes = nil
	}
	if p.end == WhenAnswered && p.nothingOwed() {
		p.out.finish(pieces...)
		return
	}
	p.out.send(pieces...)
}

// Awaiting says that the session begins, or ends, to wait for an Answer. What it has asked is sent, and
// until the end replies are read though the client doesn't take them.
func (p *Pipe) Awaiting(begins bool) {
	if begins {
		p.send()
		p.out.hurry(1)
	} else {
		p.out.hurry(-1)
	}
}

// clientGone is End with mu held.
func (p *Pipe) clientGone() {
	p.out.conn.SetWriteDeadline(time.Now().Add(linger))
	if p.route == byLane && p.inFlight > 0 {
		if p.abandon == nil {
			p.abandon = time.AfterFunc(linger, func() { p.End(AtOnce) }) // Wait stops it
		}
		return // Wait closes the home
	}
	p.closeHomeLocked()
}

// closeHomeLocked tells the upstream that nothing more is asked by the home. mu is held.
func (p *Pipe) closeHomeLocked() {
	if p.home == nil || p.home.closing {
		return
	}
	p.home.closing = true // once the upstream has closed too this fails, and replies may be left to read
	p.home.conn.SetReadDeadline(time.Now().Add(linger))
	if half, ok := p.home.conn.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		p.home.conn.Close()
	}
	p.home.seat.Rouse() // who reads it minds the deadline
}

// Wait returns when nothing of the Pipe runs any more: all that was asked by a lane has been
// answered, and the home has ended. The end must have been ClientGone or AtOnce.
func (p *Pipe) Wait() {
	p.mu.Lock()
	for p.inFlight > 0 && p.route != gone {
		p.room.Wait()
	}
	if p.abandon != nil {
		p.abandon.Stop()
	}
	if p.idle != nil {
		p.idle.Stop() // it does nothing once the client is leaving
	}
	p.closeHomeLocked()
	p.mu.Unlock()
	if p.lastHome != nil {
		<-p.lastHome.ended
	}
	p.mu.Lock()
	lane := p.lane
	p.lane = nil
	p.mu.Unlock()
	if lane != nil {
		p.lanes.leave(lane)
	}
	p.lanes.withdraw(p)
	p.out.wait()
}

// finish answers what is still owed after the session's own connection has ended, and closes the client, unless the session
// waits for an Answer: then that is for the session to do, see Lost.
func (p *Pipe) finish(err error, withinReply bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.route == gone {
		return
	}
	if p.end >= ClientGone {
		if _, awaited := p.lose(ErrClosed); !awaited {
			p.out.finish()
		}
	} else {
		text, awaited := p.lose(&upstream.Error{Addr: p.lanes.upstream.Addr, Sent: true, Err: err})
		if withinReply {
			text = nil
		}
		p.out.conn.SetWriteDeadline(time.Now().Add(time.Second))
		if !awaited { // else the session has something to say, and closes
			p.end = WhenAnswered
		}
		p.giveLocked(text)
	}
	p.room.Broadcast()
}

// lose ends the session's way to the upstream, for good. It returns what to tell the client, and
// whether an Answer was among what was owed. mu is held.
func (p *Pipe) lose(err error) (text []byte, awaited bool) {
	if p.route != gone {
		p.lost = err
		p.setRoute(gone)
	}
	return p.settleLost()
}

// maxLostText bounds what is said about requests that were lost together, bytes.
const maxLostText = 64 << 10

// settleLost empties the ledger of a lost connection, with mu held, and returns what to tell the client, and whether an
// Answer was among it. Nothing is said for QUIT and SHUTDOWN, nor behind them: the upstream closes by way of answer.
func (p *Pipe) settleLost() (text []byte, awaited bool) {
	silent := false
	for e := p.ledger.head(); e != nil; e = p.ledger.head() {
		if e.answer != nil {
			awaited = true
			e.answer.err = p.lost
			close(e.answer.Done)
		}
		if e.Effect == commands.Quit || e.Effect == commands.Closes || e.Effect == commands.Replicate {
			silent = true
		}
		for ; e.count > 0 && !silent && len(text) < maxLostText && !p.ledger.muted(); e.count-- {
			switch {
			case e.kind == local:
				text = append(text, e.local...)
			case (e.kind == relayed || e.kind == replaced) && e.Effect != Uncertain:
				text = append(text, p.encode(p.lost)...)
			}
		}
		p.ledger.pop()
	}
	return text, awaited
}
