package passthrough

// How a Pipe ends: because its client is owed nothing more, because the client has gone, or because
// the upstream has.

import (
	"time"
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
	s.Owes = p.within || p.pending.owes()
	var unread bool
	unread, s.Given, s.ClientErr = p.out.status()
	s.Answered = p.nothingOwed() && !unread
	return s
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
		p.sendLocked()
	case ClientGone:
		p.clientGone()
	case AtOnce:
		p.loseUpstream(ErrClosed)
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

// Awaiting says that the session begins, or ends, to wait for an Answer. What it has asked is sent,
// and until the end replies are read though the client doesn't take them.
func (p *Pipe) Awaiting(begins bool) {
	if begins {
		p.send()
		p.out.keepReading(1)
	} else {
		p.out.keepReading(-1)
	}
}

// clientGone is End with mu held.
func (p *Pipe) clientGone() {
	p.out.conn.SetWriteDeadline(time.Now().Add(linger))
	if p.route == byLane && p.inFlight > 0 {
		if p.lingering == nil {
			p.lingering = time.AfterFunc(linger, func() { p.End(AtOnce) }) // Wait stops it
		}
		return // Wait closes the home
	}
	p.closeHomeLocked()
}

// Wait returns when nothing of the Pipe runs any more: all that was asked by a lane has been
// answered, and the home has ended. The end must have been ClientGone or AtOnce.
func (p *Pipe) Wait() {
	p.mu.Lock()
	for p.inFlight > 0 && p.route != gone {
		p.room.Wait()
	}
	if p.lingering != nil {
		p.lingering.Stop()
	}
	if p.idleTimer != nil {
		p.idleTimer.Stop() // it does nothing once the client is leaving
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
		p.pool.leave(lane)
	}
	p.pool.cancelAlone(&p.laneSide)
	p.out.wait()
}
