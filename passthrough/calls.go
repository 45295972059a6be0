package passthrough

// What the proxy asks for itself, beyond a single Call.

// Calls sends requests of the proxy's own together, and keeps their replies from the client. If the session has a connection of its own,
// they all go by that.
func (p *Pipe) Calls(raws ...[]byte) []*Answer {
	answers := make([]*Answer, len(raws))
	for i, raw := range raws {
		answers[i] = p.Ask(raw)
	}
	p.Flush()
	return answers
}

// LetGo has a connection of the session's own given up, if nothing needs it: so that a session which waits for long isn't ended with
// it. Also where each session has one for as long as it asks something. One that hasn't been let in yet asks for a sign of that.
func (p *Pipe) LetGo() {
	p.mu.Lock()
	own := p.up != nil && p.lost == nil && !p.kept
	asks := own && !p.ledger.Trusted
	p.letGo = own
	p.held = p.held || asks // it must not be given up before that has been asked
	p.mu.Unlock()
	if asks {
		p.hidden("PING")
	}
	p.Flush()
}
