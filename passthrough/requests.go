package passthrough

// A session asks for requests to relay, requests of the proxy itself, and the proxy's replies.

import (
	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/resp"
)

// Relay sends a request, and its reply back to the client. The session calls Route before,
// and Flush after the last request. If Route failed for the First piece, the others are dropped. In
// an event loop it reports false, and does nothing, if it would have to wait.
//
// The proxy itself suppresses replies for CLIENT REPLY OFF and SKIP, so that the pending queue
// stays exact. For these, Raw must be CLIENT REPLY ON, for which Redis checks the same permission.
func (p *Pipe) Relay(r Request, it *eventloop.Iteration) (done bool) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.relayLocked(r, it)
}

// relayLocked is Relay with mu held, but not while it waits.
func (p *Pipe) relayLocked(r Request, it *eventloop.Iteration) (done bool) {
	login := r.Effect == commands.Auth || r.Effect == commands.Hello
	if it != nil && (len(r.Raw) > bufSize && !r.Discarded || login && !p.c.pending.empty()) {
		return false // a login waits for all replies, those to what sets a home up, too
	}
	e := r.entry()
	p.numbers = p.numbers || r.Numbers
	if r.Numbers || p.numbers && r.Effect == commands.Exec {
		e.shows = &p.c.pool.numbers
	}
	switch {
	case r.Instead != nil:
		e.kind, e.local = overridden, r.Instead
	case r.Discarded:
		e.kind = discarded
	}
	begun := p.c.needsHome.open
	switch {
	case r.Piece == First:
		p.c.needsHome.large, p.c.needsHome.open = largeFor, true
	case len(r.Raw) > bufSize && !r.Discarded: // it is the client's
		p.c.needsHome.large = largeFor
	case r.Piece == Broken:
		p.c.pending.removeLast()
	case r.SyncsWrites && p.c.writes == Elsewhere:
		p.c.writes = AtHome
	}
	done = true
	switch {
	case r.Piece <= First:
		done = p.enqueueLocked(e, r.Raw, it)
	case r.Piece != Broken && begun:
		p.homes.queueLocked(r.Raw, it)
	}
	if r.Piece == Last {
		p.c.needsHome.open = false
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

// logInAgainLocked follows a RESET: it logs the home in as a new one. If new ones have no login, HELLO
// finds out whether Redis admits the client without one. If the home has ended since, the next one
// is logged in when it is opened. mu is held, but not while it waits.
func (p *Pipe) logInAgainLocked() {
	if p.c.home != nil && p.c.route == byHome {
		p.login = p.c.pool.Upstream.Login()
		e := pendingReply{kind: discarded, setsUp: true, Expect: Expect{Effect: logsIn}}
		for _, cmd := range p.login {
			p.enqueueLocked(e, resp.AppendCommand(nil, cmd...), nil)
		}
		if len(p.login) == 0 {
			p.enqueueLocked(pendingReply{kind: discarded}, resp.AppendCommand(nil, "HELLO"), nil)
		}
	}
	p.c.pending.fresh = false // not sooner: until then closeIdle leaves the home open
}

// RenewLogin reports whether the login after RESET was refused and there is another password now:
// then Flush logs the home in by that.
func (p *Pipe) RenewLogin() (again bool) {
	loopguard.MayWait() // the password is read from a file
	if state, _ := p.State(); !state.Has(LoginFailed) {
		return false
	}
	if _, again = p.c.pool.Upstream.LoginAfter(p.login); again {
		p.c.mu.Lock()
		p.c.pending.set(LoginFailed, false)
		p.c.pending.fresh = true
		p.c.mu.Unlock()
	}
	return again
}

// Do gathers requests of the proxy, whose replies the client does not get. Awaiting or Flush sends
// them. In an event loop it returns nil if it would have to wait. By a lane the first of several
// may go nevertheless: there they must do no harm.
func (p *Pipe) Do(it *eventloop.Iteration, raws ...[]byte) []*Answer {
	size := 0
	for _, raw := range raws {
		size += len(raw)
	}
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	together := len(raws) == 1 || p.c.route == byLane || p.c.route == byHome &&
		!p.c.fullLocked() && p.c.pending.len()+len(raws) <= maxEntries
	if it != nil && (size > bufSize || !together) {
		return nil
	}
	answers := make([]*Answer, len(raws))
	for i, raw := range raws {
		answers[i] = p.newAnswer(nil)
		e := pendingReply{kind: internal, answer: answers[i]}
		if !p.enqueueLocked(e, raw, it) && (i == 0 || it != nil) {
			return nil
		}
	}
	return answers
}

func (p *Pipe) newAnswer(c *Call) *Answer {
	return &Answer{Done: make(chan struct{}), call: c, waiter: p.Waiter}
}

// Ask gathers a call. Awaiting or Flush sends it. In an event loop it returns nil if it would have to
// wait.
func (p *Pipe) Ask(c *Call, it *eventloop.Iteration) *Answer {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	a := p.newAnswer(c)
	if !p.enqueueLocked(pendingReply{kind: internal, answer: a}, nil, it) {
		return nil
	}
	return a
}

// LearnID asks for the home's number, unless it is known, and asked for already. known is closed
// once it is, or can not be; it is nil where there is nothing to ask for, or nothing can be asked
// now: then busy is true. inTurn says that the session asks, behind what it has asked before, and
// that Awaiting or Flush sends it.
func (p *Pipe) LearnID(inTurn bool) (known <-chan struct{}, busy bool) {
	c := &p.c
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.home
	switch {
	case c.idLocked() != 0:
		return nil, false
	case h.asked != nil:
		return h.asked, false
	}
	asked := make(chan struct{})
	h.asked = asked
	e := pendingReply{kind: discarded, Expect: Expect{Replied: func(head resp.Head) {
		n, ok := resp.ParseInt(head.Line)
		if !ok || head.Type != ':' {
			n = unknowable
		}
		h.numberedLocked(n)
	}}}
	switch {
	case c.asideLocked(e, clientIDRequest):
	case inTurn && c.route == byHome && !c.pending.fresh && !c.needsHome.open:
		p.enqueueLocked(e, clientIDRequest, nil)
	default:
		h.asked = nil
		return nil, true
	}
	return asked, false
}

// Barrier returns an Answer that is done when everything before it has been answered. The route is
// the same until then.
func (p *Pipe) Barrier() *Answer {
	a := p.newAnswer(nil)
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.pending.empty() {
		close(a.Done)
	} else {
		p.c.pending.push(pendingReply{kind: barrier, answer: a})
	}
	return a
}

// KeepAlive keeps Redis from taking the client for idle (its `timeout`), by a request that each
// client may send that takes locks. A client with anything under way is not idle.
func (p *Pipe) KeepAlive() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if !p.c.canAskLocked() {
		return
	}
	if many, ok := p.c.home.Conn.(interface{ KeepAlive([]byte) }); ok { // a cluster's, to each node
		many.KeepAlive(timeRequest)
		return
	}
	p.c.asideLocked(pendingReply{kind: discarded}, timeRequest)
}

// AwaitsApart reports whether requests can go Apart only once what the home owes has come.
func (p *Pipe) AwaitsApart() bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.lanes.keepsApart() && p.c.route == byHome && !p.c.pending.empty()
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
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if when == Finally {
		p.c.end = max(p.c.end, WhenAnswered)
	}
	switch {
	case when == Now && p.c.within:
		return false
	case when == Now:
		p.c.out.send(text)
	case !p.c.pending.empty() || p.c.within: // the client may have a part of a push
		p.c.pending.push(pendingReply{kind: local, local: text, Expect: Expect{held: len(text)}})
	default:
		if p.c.pending.Muted() {
			text = nil
		}
		p.c.pending.set(skipNext, false)
		p.c.sendLocked(text) // reading the client shows a failure
	}
	return true
}

// Push gives the client a push, between two replies. It can be called from any goroutine. ok is
// false if too many bytes wait for the end of a reply.
func (p *Pipe) Push(text []byte) (ok bool) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	return p.c.pushLocked(text)
}

var (
	timeRequest     = resp.AppendCommand(nil, "TIME")
	clientIDRequest = resp.AppendCommand(nil, "CLIENT", "ID")
)
