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
	Piece     Piece
	Instead   []byte // what the client is given in place of the reply, if that isn't nil
	Dropped   bool   // the client is given nothing
	CatchesUp bool   // with it the home knows what the session has sent Elsewhere: see Writes
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
// ledger never loses count: for these, Raw must be CLIENT REPLY ON, which asks the upstream for the
// same permission.
func (p *Pipe) Relay(r Request) {
	e := entry{Expect: r.Expect, count: r.N}
	switch {
	case r.Instead != nil:
		e.kind, e.local = replaced, r.Instead
	case r.Dropped:
		e.kind = hidden
	}
	p.mu.Lock()
	begun := p.stay.begun
	switch {
	case r.Piece == First:
		p.stay.large, p.stay.begun = largeFor, true
	case r.Piece == Broken:
		p.ledger.withdraw()
	case r.CatchesUp && p.writes == Elsewhere:
		p.writes = AtHome
	}
	p.mu.Unlock()
	switch {
	case r.Piece <= First:
		p.request(e, r.Raw)
	case r.Piece != Broken && begun:
		p.queue(r.Raw)
	}
	if r.Piece == Last {
		p.mu.Lock()
		p.stay.begun = false
		p.mu.Unlock()
	}
	if r.Effect == Uncertain {
		p.hidden("HELLO") // nobody may be refused it who isn't refused everything
	}
}

// hidden queues a request whose reply nobody hears of.
func (p *Pipe) hidden(cmd ...string) {
	p.request(entry{kind: hidden}, resp.AppendCommand(nil, cmd...))
}

// logInAgain does what comes behind a RESET: the connection is logged in as a new one is, or else
// asked whether its client may talk to the upstream without a login, as Trusted says. HELLO tells
// that to everybody.
func (p *Pipe) logInAgain() {
	p.mu.Lock()
	p.ledger.fresh = false
	p.mu.Unlock()
	login := p.lanes.upstream.Initial.Login()
	for _, cmd := range login {
		p.request(entry{kind: hidden, Expect: Expect{Effect: logsIn}}, resp.AppendCommand(nil, cmd...))
	}
	if len(login) == 0 {
		p.hidden("HELLO")
	}
}

// Do queues requests of the proxy's own, whose replies it keeps from the client. They are sent when
// they are awaited: see Awaiting.
func (p *Pipe) Do(raws ...[]byte) []*Answer {
	answers := make([]*Answer, len(raws))
	for i, raw := range raws {
		answers[i] = &Answer{Done: make(chan struct{})}
		p.request(entry{kind: captured, answer: answers[i]}, raw)
	}
	return answers
}

// Barrier's Answer is there when all that was asked before has been answered to the client. What
// Connect has given the session is still there then.
func (p *Pipe) Barrier() *Answer {
	a := &Answer{Done: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ledger.empty() {
		close(a.Done)
	} else {
		p.ledger.push(entry{kind: marker, answer: a})
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
	case !p.ledger.empty() || p.within: // a message may be on its way though nothing is owed
		p.ledger.push(entry{kind: local, local: text})
	default:
		if p.ledger.muted() {
			text = nil
		}
		p.ledger.skipNext = false
		p.giveLocked(text) // a failure shows when the client is read
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
