package passthrough

// What the proxy asks for itself, beyond a single Call.

// Calls sends requests of the proxy's own together, and keeps their replies from the client. If the session has a connection of its own,
// they all go by that.
func (p *Pipe) Calls(raws ...[]byte) []*Answer {
	answers := make([]*Answer, len(raws))
	for i, raw := range raws {
		answers[i] = &Answer{Done: make(chan struct{})}
		p.push(entry{kind: captured, answer: answers[i]})
		p.queue(raw, 1)
	}
	p.Flush()
	return answers
}

// LetGo has a connection of the session's own given up, if nothing needs it: so that a session which waits for long isn't ended with
// it. Also where each session has one for as long as it asks something.
func (p *Pipe) LetGo() {
	p.mu.Lock()
	p.letGo = p.up != nil
	p.mu.Unlock()
	p.Flush()
}
