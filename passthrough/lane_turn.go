package passthrough

// How requests and replies go by an event loop: what the sessions that the loop reads ask by a lane
// is sent once for all of them, when the loop's turn ends or something that came later must go by a
// home. Replies are given out as the loop reads them.

import (
	"errors"
	"io"
	"syscall"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/monotonic"
)

// TryRelay is Connect, Relay (or RelayRun) and Flush for a caller that may not wait: n whole requests,
// of which e describes the reply if n is 1. Where one of these might have to wait, or would open a
// connection, it does nothing and returns false. rest says that the caller must Flush before it does
// anything else, since the upstream has not taken all.
func (p *Pipe) TryRelay(raw []byte, n int, way Way, e Expect, turn *eventloop.Turn) (done, rest bool) {
	if p.failed != nil || len(p.wbuf) > 0 || len(raw) > bufSize {
		return false, false
	}
	p.mu.Lock()
	shares := way != Own && p.mayShareLocked() && (p.home != nil || p.need == unneeded)
	kind := laneKind{p.ledger.Identity, p.scripts || way == Scripts}
	if p.route == byLane && p.inFlight > 0 && (!shares || p.lane.kind != kind) {
		shares = false // what was asked by the lane must be answered first
	}
	p.mu.Unlock()
	if shares && (p.lane == nil || p.lane.kind != kind) {
		p.leaveLane()
		p.lane, _ = p.lanes.join(p, kind)
		p.scripts = kind.Scripts
	}
	if shares && p.lane != nil {
		return p.tryLane(raw, n, turn), false
	}
	return p.tryHome(raw, n, e, turn)
}

// tryLane gathers the requests on the session's lane.
func (p *Pipe) tryLane(raw []byte, n int, turn *eventloop.Turn) bool {
	l := p.lane
	if l.socket == nil || l.seat == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.gathered) > maxGathered || l.dead != nil || l.retired.Load() || l.tooSilent() || !p.takeRun(l.kind, n) {
		return false
	}
	l.gatherLocked(p, raw, n, turn)
	return true
}

// takeRun notes that the client is owed n replies to requests that go by its lane, of this kind, unless it must not be, or wait.
func (p *Pipe) takeRun(kind laneKind, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.ledger
	if p.home == nil && p.need != unneeded || !p.mayShareLocked() || p.end != stays || kind != (laneKind{l.Identity, p.scripts}) ||
		p.inFlight+n > maxInFlight || l.len() >= maxEntries || p.out.backlogged() || !p.setRoute(byLane) {
		return false
	}
	l.push(entry{count: n})
	p.inFlight += n
	p.writes = max(p.writes, Elsewhere)
	return true
}

// tryHome sends the requests by the session's home, behind all that came before in this turn.
func (p *Pipe) tryHome(raw []byte, n int, e Expect, turn *eventloop.Turn) (done, rest bool) {
	p.mu.Lock()
	l := &p.ledger
	if p.home == nil || p.home.socket == nil || p.stay.begun || p.stay.large > 0 || p.end != stays || l.len() >= maxEntries || !p.setRoute(byHome) {
		p.mu.Unlock()
		return false, false
	}
	if n == 1 {
		l.push(entry{Expect: e})
	} else {
		l.push(entry{count: n})
	}
	home := p.home
	p.mu.Unlock()
	turn.Flush()
	if p.lane != nil {
		p.leaveLane() // nothing is owed by it
	}
	sent, err := home.socket.TryWrite(raw)
	if err != nil {
		home.close() // the reader reports the loss
		return true, false
	}
	if sent < len(raw) {
		p.wbuf = append(takeBuffer(), raw[sent:]...)
		p.mu.Lock()
		p.need = held
		p.mu.Unlock()
	}
	return true, sent < len(raw)
}

// gatherLocked takes whole requests of p's, which will get n replies, to be sent when the turn ends. mu is held.
func (l *lane) gatherLocked(p *Pipe, raw []byte, n int, turn *eventloop.Turn) {
	l.gathered = append(l.gathered, raw...)
	l.unsent += n
	l.submits++
	l.runs.push(run{p, n})
	if l.silent.Load() == 0 {
		l.silent.Store(monotonic.Now())
	}
	if !l.turning {
		l.turning = true
		turn.Later(l)
	}
}

// EndTurn sends what has been gathered, without waiting for the upstream to take it.
func (l *lane) EndTurn() {
	l.mu.Lock()
	l.turning = false
	if l.writing || len(l.gathered) == 0 {
		l.mu.Unlock()
		return // who writes sees to it
	}
	out := l.takeLocked()
	l.mu.Unlock()
	n, err := l.socket.TryWrite(out)
	switch {
	case err != nil:
		l.close() // the reader reports the loss
	case n < len(out):
		l.mu.Lock()
		l.rest = out[n:]
		l.mu.Unlock()
		l.wakeWriter()
		return
	}
	l.sent(out)
}

// Ready gives out what has come.
func (l *lane) Ready(turn *eventloop.Turn) eventloop.Next {
	buf := turn.Buffer(laneBuf)
	n, err := l.socket.TryRead(buf)
	switch {
	case err == syscall.EAGAIN:
		return eventloop.Stay
	case err == io.EOF:
		l.failed = errClosedByUpstream
	case err != nil:
		l.failed = err
	default:
		l.failed = l.pass(buf[:n])
		l.heard()
	}
	switch {
	case l.failed != nil, l.replies.large():
		return eventloop.Leave
	case n == len(buf):
		return eventloop.Again
	}
	return eventloop.Stay
}

var errClosedByUpstream = errors.New("closed by the upstream")
