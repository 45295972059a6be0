package passthrough

// What a session asks for: requests that are passed on, those of the proxy's own, and what it says
// to the client itself, each in its turn.

import "lockproxy/internal/resp"

// Request is a request that is passed on, or several in a row that nothing is expected of, or a
// piece of one.
type Request struct {
	Raw []byte
	N   int // of requests in Raw, if there are several
	Way Way // for TryRelay; otherwise Connect has seen to it
	Expect
	Piece       Piece
	Instead     []byte // what the client is given in place of the reply, if that isn't nil
	Discarded   bool   // the client is given nothing
	SyncsWrites bool   // with it the home knows what the session has sent Elsewhere: see Writes
}

// Piece says which part of a request Raw is. Only the home takes pieces.
type Piece uint8

const (
	Whole Piece = iota
	First
	Further
	Last
	Broken // none: what came behind the others turned out not to be one. Nothing may be sent behind it
)

// Relay passes a request on, and its reply back to the client. The session must have called
// Connect, and calls Flush when it has no more. If it could not Connect for the First piece,
// further ones are dropped.
//
// The proxy itself leaves out the replies that CLIENT REPLY OFF and SKIP suppress, so that the
// pending queue never loses count: for these, Raw must be CLIENT REPLY ON, which asks the upstream for the
// same permission.
func (p *Pipe) Relay(r Request) {
	e := pendingReply{Expect: r.Expect, count: r.N}
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
	case r.Piece == Broken:
		p.pending.withdraw()
	case r.SyncsWrites && p.writes == Elsewhere:
		p.writes = AtHome
	}
	p.mu.Unlock()
	switch {
	case r.Piece <= First:
		p.enqueue(e, r.Raw)
	case r.Piece != Broken && begun:
		p.queue(r.Raw)
	}
	if r.Piece == Last {
		p.mu.Lock()
		p.needsHome.open = false
		p.mu.Unlock()
	}
	if r.Effect == MaybeUnanswered {
		p.discard("HELLO") // nobody may be refused it who isn't refused everything
	}
}

// hidden queues a request whose reply nobody hears of.
func (p *Pipe) discard(cmd ...string) {
	p.enqueue(pendingReply{kind: discarded}, resp.AppendCommand(nil, cmd...))
}

// logInAgain does what comes behind a RESET: the connection is logged in as a new one is, or else
// asked whether its client may talk to the upstream without a login, as Admitted says. HELLO tells
// that to everybody.
func (p *Pipe) logInAgain() {
	p.mu.Lock()
	p.pending.fresh = false
	p.mu.Unlock()
	login := p.pool.Upstream.Initial.Login()
	for _, cmd := range login {
		p.enqueue(pendingReply{kind: discarded, Expect: Expect{Effect: logsIn}}, resp.AppendCommand(nil, cmd...))
	}
	if len(login) == 0 {
		p.discard("HELLO")
	}
}

// Do queues requests of the proxy's own, whose replies it keeps from the client. They are sent when
// they are awaited: see Awaiting.
func (p *Pipe) Do(raws ...[]byte) []*Answer {
	answers := make([]*Answer, len(raws))
	for i, raw := range raws {
		answers[i] = &Answer{Done: make(chan struct{})}
		p.enqueue(pendingReply{kind: internal, answer: answers[i]}, raw)
	}
	return answers
}

// Barrier's Answer is there when all that was asked before has been answered to the client. What
// Connect has given the session is still there then.
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

// When says when the client is given a reply of the proxy's own.
type When uint8

const (
	InTurn  When = iota // behind all replies still to come
	Now                 // though it is owed others: those to requests of the proxy's own, which it doesn't see
	Finally             // InTurn, and the client is closed with it
)

// Reply gives the client a reply of the proxy's own. given is false if it can't be Now: the client
// has been given a part of a push, and must have the rest first.
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
	case !p.pending.empty() || p.within: // a message may be on its way though nothing is owed
		p.pending.push(pendingReply{kind: local, local: text})
	default:
		if p.pending.muted() {
			text = nil
		}
		p.pending.skipNext = false
		p.sendLocked(text) // a failure shows when the client is read
	}
	return true
}

// Push gives the client bytes that answer nothing, between two replies. It may be called from any
// goroutine. ok is false if too much waits for the end of the reply that the client is being given.
func (p *Pipe) Push(text []byte) (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pushLocked(text)
}
