package passthrough

// What a session asks for: requests to relay, requests of the proxy itself, and the proxy's
// replies.

import (
	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

// Request is what Relay sends: a request, a piece of one, or several that have no Effect.
type Request struct {
	Raw []byte
	N   int // how many requests Raw holds; 0 is one
	Way Way // for Route: Relay goes where that has decided
	Expect
	Piece       Piece
	Instead     []byte // the client gets this in place of the reply, unless it is nil
	Discarded   bool   // the client gets no reply
	SyncsWrites bool   // it makes Redis count the writes sent Elsewhere for the home: see Writes
}

// Piece says which part of a request Raw is. Pieces go only by the home.
type Piece uint8

const (
	Whole Piece = iota
	First
	Further
	Last
	Broken // none: the rest is invalid. Nothing may be sent after it
)

// Relay sends a request, and its reply back to the client. The session calls Route before,
// and Flush after the last request. If Route failed for the First piece, the others are dropped. In
// an event loop it reports false, and does nothing, if it would have to wait.
//
// The proxy itself suppresses replies for CLIENT REPLY OFF and SKIP, so that the pending queue
// stays exact. For these, Raw must be CLIENT REPLY ON, for which Redis checks the same permission.
func (p *Pipe) Relay(r Request, it *eventloop.Iteration) (done bool) {
	if it != nil && len(r.Raw) > bufSize && !r.Discarded {
		return false
	}
	e := r.entry()
	p.numbers = p.numbers || r.Numbers
	if r.Numbers || p.numbers && r.Effect == commands.Exec {
		e.shows = &p.pool.numbers
	}
	switch {
	case r.Instead != nil:
		e.kind, e.local = overridden, r.Instead
	case r.Discarded:
		e.kind = discarded
	}
	p.mu.Lock()
	begun := p.needsHome.open
	switch {
	case r.Piece == First:
		p.needsHome.large, p.needsHome.open = largeFor, true
	case len(r.Raw) > bufSize && !r.Discarded: // it is the client's
		p.needsHome.large = largeFor
	case r.Piece == Broken:
		p.pending.removeLast()
	case r.SyncsWrites && p.writes == Elsewhere:
		p.writes = AtHome
	}
	p.mu.Unlock()
	done = true
	switch {
	case r.Piece <= First:
		done = p.enqueue(e, r.Raw, it)
	case r.Piece != Broken && begun:
		p.queue(r.Raw, it)
	}
	if r.Piece == Last {
		p.mu.Lock()
		p.needsHome.open = false
		p.mu.Unlock()
	}
	return done
}

// entry is what the client is owed for the request.
func (r *Request) entry() pendingReply {
	e := pendingReply{Expect: r.Expect, count: r.N}
	if r.Change != nil || r.Text != nil || r.Replied != nil {
		e.held = len(r.Raw)
	}
	return e
}

// discard sends a request and discards its reply.
func (p *Pipe) discard(cmd ...string) {
	p.enqueue(pendingReply{kind: discarded}, resp.AppendCommand(nil, cmd...), nil)
}

// logInAgain follows a RESET: it logs the home in as a new one. If new ones have no login, HELLO
// finds out whether Redis admits the client without one. If the home has ended since, the next one
// is logged in when it is opened.
func (p *Pipe) logInAgain() {
	defer func() { // not sooner: until then closeIdle leaves the home open
		p.mu.Lock()
		p.pending.fresh = false
		p.mu.Unlock()
	}()
	if p.homeInUse() == nil {
		return
	}
	p.login = p.pool.Upstream.Login()
	for _, cmd := range p.login {
		p.enqueue(pendingReply{kind: discarded, setsUp: true, Expect: Expect{Effect: logsIn}},
			resp.AppendCommand(nil, cmd...), nil)
	}
	if len(p.login) == 0 {
		p.discard("HELLO")
	}
}

// RenewLogin reports whether the login after RESET was refused and there is another password now:
// then Flush logs the home in by that.
func (p *Pipe) RenewLogin() (again bool) {
	loopguard.MayWait() // the password is read from a file
	if state, _ := p.State(); !state.LoginFailed {
		return false
	}
	if _, again = p.pool.Upstream.LoginAfter(p.login); again {
		p.mu.Lock()
		p.pending.LoginFailed, p.pending.fresh = false, true
		p.mu.Unlock()
	}
	return again
}

// Do gathers requests of the proxy, whose replies the client does not get. Awaiting or Flush sends
// them. In an event loop it returns nil if it would have to wait. By a lane the first of several
// may go nevertheless: there they must do no harm.
func (p *Pipe) Do(it *eventloop.Iteration, raws ...[]byte) []*Answer {
	if it != nil && !p.takesAll(raws) {
		return nil
	}
	answers := make([]*Answer, len(raws))
	for i, raw := range raws {
		answers[i] = p.newAnswer(nil, it)
		if !p.enqueue(pendingReply{kind: internal, answer: answers[i]}, raw, it) && (i == 0 || it != nil) {
			return nil
		}
	}
	return answers
}

// takesAll reports whether requests can be gathered together without waiting.
func (p *Pipe) takesAll(raws [][]byte) bool {
	size := 0
	for _, raw := range raws {
		size += len(raw)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return size <= bufSize && (len(raws) == 1 || p.route == byLane ||
		p.route == byHome && !p.fullLocked() && p.pending.len()+len(raws) <= maxEntries)
}

func (p *Pipe) newAnswer(c *Call, it *eventloop.Iteration) *Answer {
	a := &Answer{Done: make(chan struct{}), call: c}
	if it != nil {
		a.waiter = p.Waiter
	}
	return a
}

// Ask gathers a call. Awaiting or Flush sends it. In an event loop it returns nil if it would have to
// wait.
func (p *Pipe) Ask(c *Call, it *eventloop.Iteration) *Answer {
	a := p.newAnswer(c, it)
	if !p.enqueue(pendingReply{kind: internal, answer: a}, nil, it) {
		return nil
	}
	return a
}

// Barrier returns an Answer that is done when everything before it has been answered. The route is
// the same until then.
func (p *Pipe) Barrier() *Answer {
	a := &Answer{Done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pending.empty() {
		close(a.Done)
	} else {
		p.pending.push(pendingReply{kind: barrier, answer: a})
	}
	return a
}

// AwaitsApart reports whether requests can go Apart only once what the home owes has come.
func (p *Pipe) AwaitsApart() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keepsApart() && p.route == byHome && !p.pending.empty()
}

// When says when the client gets a reply of the proxy.
type When uint8

const (
	InTurn  When = iota // after the replies to earlier requests
	Now                 // at once; only while every missing reply is to a request of the proxy
	Finally             // InTurn, and then the client is closed
)

// Reply gives the client a reply of the proxy. given is false if Now is impossible because the
// client has only a part of a push.
func (p *Pipe) Reply(text []byte, when When) (given bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if when == Finally {
		p.end = max(p.end, WhenAnswered)
	}
	switch {
	case when == Now && p.within:
		return false
	case when == Now:
		p.out.send(text)
	case !p.pending.empty() || p.within: // the client may have a part of a push
		p.pending.push(pendingReply{kind: local, local: text, Expect: Expect{held: len(text)}})
	default:
		if p.pending.Muted() {
			text = nil
		}
		p.pending.skipNext = false
		p.sendLocked(text) // reading the client shows a failure
	}
	return true
}

// Push gives the client a push, between two replies. It can be called from any goroutine. ok is
// false if too many bytes wait for the end of a reply.
func (p *Pipe) Push(text []byte) (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pushLocked(text)
}
