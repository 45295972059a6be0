package passthrough

// A Pipe ends here.

import (
	"net"
	"sync/atomic"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
)

// Lost reports whether the upstream connection was lost: the session must end WhenAnswered.
func (p *Pipe) Lost() bool { return p.c.over.Load() }

// Status has the facts about a Pipe that a session needs in addition to State.
type Status struct {
	Owes      bool   // the client is owed a visible reply
	Given     uint64 // bytes for the client so far, read or not
	ClientErr error  // why writing to the client failed; nil if it did not
	Writes    Writes
	Home      net.Conn // nil for none
	// ID is the number by which others know the client: its home's, as CLIENT ID tells it. It is 0
	// if there is no home, or the number is not known: see LearnID.
	ID         int64
	AsksItself bool // what Redis runs for the client is what the proxy asks it
	// BlockedUntil is when the last request was answered that can have waited for what another
	// client does. It is the present if one has no reply yet, and zero if there was none.
	BlockedUntil time.Time
}

// Status returns the current Status.
func (p *Pipe) Status() (s Status) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	s.Owes, s.Writes = p.c.within || p.c.pending.len() > p.c.pending.unseen, p.c.writes
	_, s.Given, s.ClientErr = p.c.out.status()
	if p.c.home != nil {
		s.Home, s.ID = p.c.home.Conn, max(p.c.idLocked(), 0)
	}
	if head := p.c.pending.head(); head != nil {
		s.AsksItself = head.kind == internal
	}
	if s.BlockedUntil = p.c.pending.blockedUntil; p.c.pending.blocks() {
		s.BlockedUntil = time.Now()
	}
	return s
}

// Blocks reports whether a request that has no reply can wait for what another client does.
func (p *Pipe) Blocks() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.pending.blocks()
}

// End ends the session's use of upstream connections:
//
//   - WhenAnswered: the client is closed when nothing is owed to it.
//   - ClientGone: the client has closed its side. The home's side is closed too, so that Redis
//     finishes, cancels what blocks, and closes: then Wait returns. The lane answers first.
//   - AtOnce: nothing is waited for. Any goroutine can ask for this, at any time, more than once.
func (p *Pipe) End(when Ending) {
	if when != AtOnce {
		p.Flush(nil)
	}
	p.c.mu.Lock()
	asked := p.c.end >= WhenAnswered // QUIT, at which Redis closes the home
	p.c.end = max(p.c.end, when)
	lane := p.lanes.lane
	switch when {
	case WhenAnswered:
		p.c.allSent = !asked
		p.c.sendLocked()
	case ClientGone:
		p.clientGone(asked && !p.c.allSent)
	case AtOnce:
		p.c.loseUpstream(ErrClosed)
		if p.c.home != nil {
			p.c.home.Close()
		}
		p.c.room.Broadcast()
	}
	p.c.mu.Unlock()
	if when == AtOnce && lane != nil {
		lane.wakeWaiting()
	}
}

// AwaitFree ends the process if a panic has left the Pipe's state locked: see panics.Free.
func (p *Pipe) AwaitFree(fault *panics.Panic) {
	loopguard.MayWait()
	panics.Free(&p.c.mu, fault)
}

// Awaiting says that the session begins or stops to wait for an Answer. The beginning sends what is
// gathered. Until the session stops, replies are read even if the client does not read them.
func (p *Pipe) Awaiting(begins bool) {
	if begins {
		p.c.mu.Lock()
		p.sendLocked()
		p.c.mu.Unlock()
		p.c.out.addMustRead(1)
	} else {
		p.c.out.addMustRead(-1)
	}
}

// clientGone is End(ClientGone) with mu held. quit says that Redis closes the home.
func (p *Pipe) clientGone(quit bool) {
	p.c.out.conn.SetWriteDeadline(time.Now().Add(Linger))
	if !quit {
		p.c.releaseHomeLocked()
	}
	if p.c.route == byLane && p.c.inFlight > 0 {
		if p.lingering == nil {
			p.lingering = time.AfterFunc(Linger, func() { p.End(AtOnce) }) // Wait stops it
		}
		return // Wait closes the home
	}
	p.c.closeHomeLocked()
}

// settlePatience is how long Settle waits for an upstream that does not answer.
const settlePatience = time.Second

// Settle returns when everything that was asked is answered, and the client has been given the
// answers or takes no more; or after settlePatience: one node of a cluster can be silent, or the
// server replaced. The home can still linger then. End must have been called.
func (p *Pipe) Settle() {
	loopguard.MayWait()
	var over atomic.Bool
	timer := time.AfterFunc(settlePatience, func() {
		over.Store(true)
		p.c.mu.Lock()
		p.c.room.Broadcast()
		p.c.mu.Unlock()
		p.c.out.wake()
	})
	defer timer.Stop()
	p.c.mu.Lock()
	for !over.Load() && !p.c.pending.empty() && p.c.route != gone &&
		(p.c.inFlight > 0 || p.c.home != nil && !isClosed(p.c.home.ended)) {
		p.c.room.Wait()
	}
	p.c.mu.Unlock()
	p.c.out.settle(&over)
}

// Wait returns when the lane has answered everything, and the home and all goroutines of the Pipe
// have ended. End must have been called, with ClientGone or AtOnce.
func (p *Pipe) Wait() {
	loopguard.MayWait()
	p.c.mu.Lock()
	for p.c.inFlight > 0 && p.c.route != gone {
		p.c.room.Wait()
	}
	if p.lingering != nil {
		p.lingering.Stop()
	}
	if p.homes.idleTimer != nil {
		p.homes.idleTimer.Stop() // it does nothing once the client is disconnected
	}
	p.c.closeHomeLocked()
	last := p.homes.lastHome
	p.c.mu.Unlock()
	if last != nil {
		<-last.ended
	}
	p.c.mu.Lock()
	lane := p.lanes.lane
	p.lanes.lane = nil
	p.c.mu.Unlock()
	if lane != nil {
		p.c.pool.leave(lane)
	}
	p.c.pool.cancelAlone(&p.lanes.alone)
	p.c.out.wait()
}
