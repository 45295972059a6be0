package passthrough

// How a Pipe ends: because its client is owed nothing more, because the client has gone, or because the upstream has.

import (
	"time"
)

// Lost reports whether the upstream connection has ended. The session must end then: CloseWhenAnswered closes at once.
func (p *Pipe) Lost() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost != nil
}

// CloseWhenAnswered closes the client as soon as nothing is owed to it.
func (p *Pipe) CloseWhenAnswered() {
	p.Flush()
	p.mu.Lock()
	p.ending = true
	now := p.nothingOwed() && p.wmu.TryLock() // else whoever writes now, maybe the last that is owed, closes afterwards
	if now {
		p.wmu.Unlock()
	}
	p.mu.Unlock()
	if now {
		p.client.Close()
	}
}

func (p *Pipe) nothingOwed() bool { return p.ledger.empty() || p.lost != nil }

// ClientGone says that the client has closed its side. The upstream is told in the same way, so that it finishes what it
// was sent, gives up what blocks, and closes: then Wait returns.
func (p *Pipe) ClientGone() {
	p.Flush()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = true
	p.client.SetWriteDeadline(time.Now().Add(linger))
	if p.up == nil {
		return
	}
	p.up.SetReadDeadline(time.Now().Add(linger))
	if half, ok := p.up.(interface{ CloseWrite() error }); !ok || half.CloseWrite() != nil {
		p.up.Close()
	}
}

// Close ends the upstream connection at once. Safe to call at any time, from any goroutine, more than once.
func (p *Pipe) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = true
	if p.up != nil {
		p.up.Close()
	}
}

// Wait returns when the upstream connection has ended and its reader with it.
func (p *Pipe) Wait() {
	if p.reader != nil {
		<-p.reader
	}
}

func (p *Pipe) readReplies() {
	defer close(p.reader)
	r := replyReader{pipe: p}
	err := r.run()
	p.up.Close()
	p.finish(err, r.scan.Began() && r.dest == relayed)
}

// finish answers what is still owed after the upstream connection has ended, and closes the client, unless the session
// waits for an Answer: then that is for the session to do, see Lost.
func (p *Pipe) finish(err error, withinReply bool) {
	p.wmu.Lock()
	p.mu.Lock()
	p.lost = &Error{Addr: p.upstream.Addr, Sent: true, Err: err}
	if p.leaving {
		p.lost = ErrClosed
	}
	text, awaited := p.settleLost()
	leaving := p.leaving
	p.room.Broadcast()
	p.mu.Unlock()
	if len(text) > 0 && !withinReply && !leaving {
		p.client.SetWriteDeadline(time.Now().Add(time.Second))
		p.client.Write(text)
	}
	p.mu.Lock()
	closing := !awaited || p.ending // else the session has something to say, and closes
	p.wmu.Unlock()
	p.mu.Unlock()
	if closing {
		p.client.Close()
	}
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
		if e.Effect == Quit || e.Effect == Closes || e.Effect == Replicate {
			silent = true
		}
		for ; e.count > 0 && !silent && len(text) < maxLostText && !p.ledger.muted(); e.count-- {
			switch {
			case e.kind == local:
				text = append(text, e.local...)
			case e.kind == relayed || e.kind == replaced:
				text = append(text, p.encode(p.lost)...)
			}
		}
		p.ledger.pop()
	}
	return text, awaited
}
