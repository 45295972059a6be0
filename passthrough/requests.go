package passthrough

// What a session asks for: requests that are passed on, those of the proxy's own, and what it says to the client itself, each in its turn.

import "lockproxy/internal/resp"

// Relay queues one whole request, or on a connection of the session's own the first piece of one, whose reply goes to the client
// unchanged.
//
// The proxy itself leaves out the replies that CLIENT REPLY OFF and SKIP suppress, so that the ledger never loses count: for
// these, raw must be CLIENT REPLY ON, which asks the upstream for the same permission.
func (p *Pipe) Relay(raw []byte, e Expect) {
	p.request(entry{Expect: e}, raw)
}

// RelayUncertain queues a request that gets no reply unless it is refused, and a probe behind it. The session must not be within MULTI, nor
// Subscribed, and its state settled.
func (p *Pipe) RelayUncertain(raw []byte) {
	p.request(entry{Expect: Expect{Effect: uncertain}}, raw)
	p.hidden("HELLO") // nobody may be refused it who isn't refused everything
}

// AfterReset does what comes behind a RESET that has been answered, if it has been done: the connection is logged in as a new one is, or
// else asked whether its client may talk to the upstream without a login, as Trusted says. HELLO tells that to everybody.
func (p *Pipe) AfterReset() {
	p.mu.Lock()
	fresh := p.ledger.fresh
	p.ledger.fresh = false
	p.mu.Unlock()
	if !fresh {
		return
	}
	login := p.lanes.upstream.Initial.Login()
	for _, cmd := range login {
		p.request(entry{kind: hidden, Expect: Expect{Effect: logsIn}}, resp.AppendCommand(nil, cmd...))
	}
	if len(login) == 0 {
		p.hidden("HELLO")
	}
}

// RelayRun queues n whole requests in a row, as Relay queues each. They must be such that Connect need not be asked for each, and
// expect nothing: none of them changes the connection.
func (p *Pipe) RelayRun(raw []byte, n int) {
	p.request(entry{count: n}, raw)
}

// hidden queues a request whose reply nobody hears of.
func (p *Pipe) hidden(cmd ...string) {
	p.request(entry{kind: hidden}, resp.AppendCommand(nil, cmd...))
}

// Ignore sends a request of the proxy's own whose reply is of no interest.
func (p *Pipe) Ignore(cmd ...string) { p.hidden(cmd...) }

// RelayLarge queues the first piece of a request that Continue will add to. The session must have a connection of its own.
func (p *Pipe) RelayLarge(raw []byte, e Expect) {
	p.mu.Lock()
	p.stay.large, p.stay.begun = largeFor, true
	p.mu.Unlock()
	p.Relay(raw, e)
}

// Continue queues a further piece of the request that RelayLarge began; last says that it is complete with that. If RelayLarge has
// not begun it, for want of a connection, the pieces are dropped.
func (p *Pipe) Continue(raw []byte, last bool) {
	p.mu.Lock()
	begun := p.stay.begun
	p.mu.Unlock()
	if !begun {
		return
	}
	p.queue(raw)
	if last {
		p.mu.Lock()
		p.stay.begun = false
		p.mu.Unlock()
	}
}

// Withdraw says that the request that RelayLarge began will never be complete, since the client's bytes turned out not to be one.
// Nothing may be sent behind it.
func (p *Pipe) Withdraw() {
	p.mu.Lock()
	p.ledger.withdraw()
	p.mu.Unlock()
}

// Calls sends requests of the proxy's own together, and keeps their replies from the client.
func (p *Pipe) Calls(raws ...[]byte) []*Answer {
	answers := make([]*Answer, len(raws))
	for i, raw := range raws {
		answers[i] = p.Ask(raw)
	}
	p.Flush()
	return answers
}

// Call sends a request of the proxy's own and keeps its reply from the client.
func (p *Pipe) Call(raw []byte) *Answer {
	a := p.Ask(raw)
	p.Flush()
	return a
}

// Ask queues a request of the proxy's own, whose reply it keeps from the client.
func (p *Pipe) Ask(raw []byte) *Answer {
	a := &Answer{Done: make(chan struct{})}
	p.request(entry{kind: captured, answer: a}, raw)
	return a
}

// Replace sends a request and gives the client text in place of its reply.
func (p *Pipe) Replace(raw, text []byte) {
	p.request(entry{kind: replaced, local: text}, raw)
}

// Barrier's Answer is there when all that was asked before has been answered to the client. What Connect has given the session is
// still there then.
func (p *Pipe) Barrier() *Answer {
	a := &Answer{Done: make(chan struct{})}
	p.mu.Lock()
	if p.ledger.empty() {
		close(a.Done)
	} else {
		p.ledger.push(entry{kind: marker, answer: a})
	}
	p.mu.Unlock()
	p.send()
	return a
}

// Local gives the client a reply of the proxy's own, in its turn behind all replies still to come.
func (p *Pipe) Local(text []byte) { p.say(text, false) }

// Last is Local for what is said last: the client is closed with it.
func (p *Pipe) Last(text []byte) { p.say(text, true) }

func (p *Pipe) say(text []byte, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last {
		p.end = max(p.end, whenAnswered)
	}
	if !p.ledger.empty() || p.within { // a message may be on its way though nothing is owed
		p.ledger.push(entry{kind: local, local: text})
		return
	}
	if p.ledger.muted() {
		text = nil
	}
	p.ledger.skipNext = false
	p.giveLocked(text) // a failure shows when the client is read
}

// GiveNow gives the client the replies to requests before which all have been answered, though it is owed others: those to requests of the proxy's
// own, which it doesn't see. given is false if the client has been given a part of a push, and must have the rest first.
func (p *Pipe) GiveNow(text []byte) (given bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.within {
		return false
	}
	p.out.send(text)
	return true
}

// Owes reports whether the client is owed anything that it is to see.
func (p *Pipe) Owes() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.within || p.ledger.owes()
}

// maxPushes bounds what waits in pushes, bytes.
const maxPushes = 64 << 10

// Push gives the client bytes that answer nothing, between two replies. It may be called from any goroutine. ok is false if too much
// waits for the end of the reply that the client is being given.
func (p *Pipe) Push(text []byte) (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pushLocked(text)
}

// pushLocked is Push with mu held.
func (p *Pipe) pushLocked(text []byte) (ok bool) {
	if !p.within {
		p.out.send(text)
		return true
	}
	if len(p.pushes)+len(text) > maxPushes {
		return false
	}
	p.pushes = append(p.pushes, text...)
	return true
}
