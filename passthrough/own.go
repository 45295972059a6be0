package passthrough

// How a Pipe has an upstream connection of its own: from Connect until its reader finds that it isn't needed any more.

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"time"
)

// pin gives the session a connection of its own, set up as it has set itself up.
func (p *Pipe) pin(ctx context.Context, timeout time.Duration) (connects bool, err error) {
	last := p.lane
	p.leaveLane()
	p.rides = false // nor if this fails
	if p.reader != nil {
		p.out.hurry(1)
		<-p.reader // it has given up its connection
		p.out.hurry(-1)
	}
	p.mu.Lock()
	setup, trusted := p.ledger.setup(), p.ledger.Trusted
	p.mu.Unlock()
	conn, g, isNew, err := p.obtain(ctx, timeout, setup, trusted && p.lanes.perIdentity > 0)
	if err != nil {
		return true, err
	}
	p.mu.Lock()
	way := directly(conn)
	p.up, p.upw, p.held = conn, way, true
	if p.leaving {
		conn.Close()
	}
	p.mu.Unlock()
	p.isNew = true
	if last != nil && (p.lanes.broke(last) || last.conn.RemoteAddr().String() != conn.RemoteAddr().String()) {
		p.severed = true
	}
	p.reader = make(chan struct{})
	p.lanes.pinned.Add(1)
	go p.readOwn(conn, way, p.reader, g) // ends when conn does or isn't needed; Close closes conn and Wait waits
	if isNew {
		for _, cmd := range setup.labelCommands() {
			p.hidden(cmd...)
		}
	}
	return isNew, nil
}

// obtain returns a connection that is set up so, new or not. A session that has been let in gets one also if it would not be let in once
// more, and g, which must be disowned, is then whom it belongs to.
func (p *Pipe) obtain(ctx context.Context, timeout time.Duration, setup Setup, letIn bool) (conn net.Conn, g *group, isNew bool, err error) {
	if letIn {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		g = p.lanes.own(p, setup.Identity)
		if conn = p.lanes.takeSpare(setup); conn != nil {
			return conn, g, false, nil
		}
		if conn, isNew, err = p.lanes.obtain(ctx, setup, p); err == nil {
			return conn, g, isNew, nil
		}
		p.lanes.disown(g)
		if !demandsLogin(err) || setup.LoggedIn {
			return nil, nil, true, err
		}
		p.distrust()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err = p.lanes.upstream.connect(ctx, setup.Identity)
	return conn, nil, true, err
}

// distrust forgets that the session, which hasn't logged in, has been let in: a login is demanded now, and nothing is left by which it
// could be served without. The upstream tells it so.
func (p *Pipe) distrust() {
	p.lanes.quit(p)
	p.mu.Lock()
	p.ledger.Trusted = false
	p.mu.Unlock()
}

// readOwn brings replies until the connection ends, or isn't needed any more.
func (p *Pipe) readOwn(conn net.Conn, from io.Reader, ended chan struct{}, g *group) {
	defer close(ended)
	defer p.lanes.pinned.Add(-1)
	if g != nil {
		defer p.lanes.disown(g)
	}
	var r replyReader
	spare, err := p.copyReplies(conn, from, &r)
	if spare {
		return
	}
	conn.Close()
	p.finish(err, r.within())
}

// copyReplies returns why the connection ended, or that it is a spare now.
func (p *Pipe) copyReplies(conn net.Conn, from io.Reader, r *replyReader) (spare bool, err error) {
	buf := make([]byte, minBuf)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			spare, err := p.passOwn(conn, r, buf[:n])
			if spare || err != nil {
				return spare, err
			}
		}
		if errors.Is(err, os.ErrDeadlineExceeded) && p.takeLook() {
			if p.giveUp(conn) {
				return true, nil
			}
			continue
		}
		if errors.Is(err, io.EOF) {
			return false, errClosedByUpstream
		}
		if err != nil {
			return false, err
		}
		if n == len(buf) && n < bufSize {
			buf = make([]byte, 2*n)
		}
	}
}

// passOwn gives the client its part of what was read, and waits until it has taken that, unless there is a hurry: what comes next
// waits at the upstream, which has limits for it.
func (p *Pipe) passOwn(conn net.Conn, r *replyReader, data []byte) (spare bool, err error) {
	p.mu.Lock()
	_, _, err = r.sort(p, data, -1)
	if r.size > largeReply {
		p.large = largeFor
	}
	p.within = r.within() || p.ledger.Raw
	if p.ledger.pause != (pauseChange{}) {
		p.lanes.pause.said(p.ledger.pause)
		p.ledger.pause = pauseChange{}
	}
	if p.leaving {
		conn.SetReadDeadline(time.Now().Add(linger))
	}
	spare = err == nil && p.spareLocked()
	setup := p.ledger.setup()
	held := spare && p.out.hold() // the spare is there for others before the client has its answer
	if !p.salvaging {             // else there is nobody to give anything to
		p.giveLocked(r.out...)
	}
	salvaging := p.salvaging
	p.room.Signal()
	p.mu.Unlock()

	if spare {
		p.lanes.keepSpare(p, conn, setup)
	}
	if held {
		p.out.release()
	}
	if spare || salvaging {
		return spare, err
	}
	p.out.waitBelow(0)
	if gone := p.out.err(); gone != nil && err == nil {
		err = errors.Join(errors.New("client is gone"), gone)
	}
	return false, err
}

// spareLocked gives up the connection if nothing needs it, and reports whether. mu is held.
func (p *Pipe) spareLocked() bool {
	if p.neededLocked() {
		return false
	}
	if p.leaving || p.look { // nobody interrupts its next reader
		p.up.SetReadDeadline(time.Time{})
	}
	p.up, p.letGo, p.look = nil, false, false
	return true
}

// neededLocked reports whether anything needs the session's own connection. mu is held.
func (p *Pipe) neededLocked() bool {
	if p.within {
		return true // the rest of a push is to come
	}
	if p.salvaging {
		return !p.ledger.empty() || !p.ledger.Shareable()
	}
	return p.lanes.perIdentity == 0 && !p.letGo || p.held || p.kept || p.broken || p.large > 0 || p.leaving || p.ending || !p.ledger.empty() || !p.ledger.Shareable()
}

// lookLocked has the reader of the session's own connection give it up if nothing needs it: when no reply is to come at which
// it would look by itself. mu is held.
func (p *Pipe) lookLocked() {
	if p.up != nil && p.lost == nil && !p.neededLocked() {
		p.look = true
		p.up.SetReadDeadline(time.Unix(1, 0))
	}
}

// takeLook reports whether it was lookLocked that has interrupted the reader, and has it wait as before.
func (p *Pipe) takeLook() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	look := p.look
	p.look = false
	switch {
	case look && p.leaving:
		p.up.SetReadDeadline(time.Now().Add(linger))
	case look:
		p.up.SetReadDeadline(time.Time{})
	}
	return look
}

// giveUp gives up the session's own connection if nothing needs it, and reports whether.
func (p *Pipe) giveUp(conn net.Conn) bool {
	p.mu.Lock()
	spare := p.spareLocked()
	setup := p.ledger.setup()
	p.mu.Unlock()
	if spare {
		p.lanes.keepSpare(p, conn, setup)
	}
	return spare
}
