package passthrough

// How a lane goes by an event loop: what the sessions that the loop reads have asked is sent once for all of them, when the loop's turn ends,
// and the replies are given out as the loop reads them.

import (
	"errors"
	"io"
	"syscall"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/monotonic"
)

// TryRelayRun is Connect for a Shared way, RelayRun and Flush for a caller that may not wait. Where one of these might have to, or would
// open a connection, it does nothing and returns false. What it sends leaves at the end of turn.
func (p *Pipe) TryRelayRun(raw []byte, n int, turn *eventloop.Turn) bool {
	l := p.lane
	if l == nil || l.socket == nil || l.seat == nil || p.failed != nil || len(p.wbuf) > 0 {
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

// Sharing reports whether what the session asks next may well go by a lane.
func (p *Pipe) Sharing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lane != nil && p.up == nil
}

// takeRun notes that the client is owed n replies to requests that go by its lane, of this kind, unless it must not be, or wait.
func (p *Pipe) takeRun(kind laneKind, n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := &p.ledger
	if p.up != nil || p.lost != nil || p.large > 0 || p.ending || p.leaving || !l.Trusted || kind != (laneKind{l.Identity, p.scripts}) ||
		p.inFlight+n > maxInFlight || l.len() >= maxEntries || p.lanes.pause.on.Load() || p.out.backlogged() {
		return false
	}
	l.push(entry{count: n})
	p.inFlight += n
	p.rides = true
	return true
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
