package passthrough

// How a Pipe ends.

import (
	"sync/atomic"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
)

// Status is what a session needs to know of its Pipe in addition to State.
type Status struct {
	Lost      bool   // the upstream connection was lost: the session must end WhenAnswered
	Owes      bool   // the client is owed a visible reply
	Idle      bool   // no request is without a reply, visible or not
	Given     uint64 // bytes for the client so far, read or not
	ClientErr error  // why writing to the client failed; nil if it did not
	Writes    Writes
}

// Status returns the current one.
func (p *Pipe) Status() (s Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.Lost, s.Writes = p.route == gone, p.writes
	s.Owes, s.Idle = p.within || p.pending.owes(), p.pending.empty()
	_, s.Given, s.ClientErr = p.out.status()
	return s
}

// Blocks reports whether a request that has no reply can wait for what another client does.
func (p *Pipe) Blocks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pending.blocks()
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
	p.mu.Lock()
	asked := p.end >= WhenAnswered // QUIT, at which Redis closes the home
	p.end = max(p.end, when)
	lane := p.lane
	switch when {
	case WhenAnswered:
		p.allSent = !asked
		p.sendLocked()
	case ClientGone:
		p.clientGone(asked && !p.allSent)
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

// AwaitFree ends the process if a panic has left the Pipe's state locked: see panics.Free.
func (p *Pipe) AwaitFree(fault *panics.Panic) {
	loopguard.MayWait()
	panics.Free(&p.mu, fault)
}

// Awaiting says that the session begins or stops to wait for an Answer. The beginning sends what is
// gathered. Until the session stops, replies are read even if the client does not read them.
func (p *Pipe) Awaiting(begins bool) {
	if begins {
		p.send()
		p.out.addMustRead(1)
	} else {
		p.out.addMustRead(-1)
	}
}

// clientGone is End(ClientGone) with mu held. quit says that Redis closes the home.
func (p *Pipe) clientGone(quit bool) {
	p.out.conn.SetWriteDeadline(time.Now().Add(Linger))
	if !quit {
		p.releaseHomeLocked()
	}
	if p.route == byLane && p.inFlight > 0 {
		if p.lingering == nil {
			p.lingering = time.AfterFunc(Linger, func() { p.End(AtOnce) }) // Wait stops it
		}
		return // Wait closes the home
	}
	p.closeHomeLocked()
}

// settlePatience is how long Settle waits for an upstream that does not answer.
const settlePatience = time.Second

// Settle returns when everything that was asked is answered, and the client has been given the
// answers or takes no more; or after settlePatience: one node of a cluster can be silent, or the
// server replaced. The home can still linger then. End must have been called.
func (p *Pipe) Settle() {
	loopguard.MayWait()
	if p.settled() && p.out.settled() {
		return
	}
	var over atomic.Bool
	timer := time.AfterFunc(settlePatience, func() {
		over.Store(true)
		p.mu.Lock()
		p.room.Broadcast()
		p.mu.Unlock()
		p.out.wake()
	})
	defer timer.Stop()
	p.mu.Lock()
	for !over.Load() && !p.settledLocked() {
		p.room.Wait()
	}
	p.mu.Unlock()
	p.out.settle(&over)
}

func (p *Pipe) settled() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settledLocked()
}

// settledLocked reports whether everything is answered. mu is held.
func (p *Pipe) settledLocked() bool {
	return p.pending.empty() || p.route == gone ||
		p.inFlight == 0 && (p.home == nil || p.home.isEnded())
}

// Wait returns when the lane has answered everything, and the home and all goroutines of the Pipe
// have ended. End must have been called, with ClientGone or AtOnce.
func (p *Pipe) Wait() {
	loopguard.MayWait()
	p.mu.Lock()
	for p.inFlight > 0 && p.route != gone {
		p.room.Wait()
	}
	if p.lingering != nil {
		p.lingering.Stop()
	}
	if p.idleTimer != nil {
		p.idleTimer.Stop() // it does nothing once the client is disconnected
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
