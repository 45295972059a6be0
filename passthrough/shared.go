package passthrough

import "lockproxy/internal/upstream"

// How a Pipe goes by a lane, which it shares with other sessions.

const (
	// maxInFlight is how many replies a session may be waiting for on a lane: others' requests stand behind these.
	maxInFlight = 1024
	// maxBacklog is how much a client may leave unread before it goes on by a connection of its own, bytes: there the upstream
	// keeps its replies, as it does for its own clients, and the proxy's memory and files have only what was asked before.
	maxBacklog = spoolMemory
	// largeFor is how many further requests a session with large requests or replies keeps its own connection.
	largeFor = 256
)

// useLane has what comes next go by a lane of this kind, and reports whether there is one.
func (p *Pipe) useLane(kind laneKind) bool {
	if p.lane == nil || p.lane.kind != kind || !p.lane.serves() {
		p.leaveLane()
		opening := p.join(kind)
		if p.lane == nil && opening != nil && p.lanes.upstream.IsCluster() {
			<-opening // within dialTimeout
			p.join(kind)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lane != nil && p.setRoute(byLane) // if no push has begun to come by the home meanwhile
}

// join joins a lane of this kind, if there is one, and otherwise returns what tells when one may be.
func (p *Pipe) join(kind laneKind) (opening <-chan struct{}) {
	l, opening := p.lanes.join(p, kind)
	if l != nil {
		p.mu.Lock()
		p.lane = l
		p.mu.Unlock()
	}
	return opening
}

// useHome has what comes next go by the home, behind all that was asked by the lane.
func (p *Pipe) useHome() {
	p.leaveLane()
	p.mu.Lock()
	if p.route == byLane {
		p.setRoute(byHome)
	}
	p.mu.Unlock()
}

// leaveLane waits until the session has all its replies, and leaves.
func (p *Pipe) leaveLane() {
	l := p.lane
	if l == nil {
		return
	}
	p.Flush()
	p.mu.Lock()
	for p.inFlight > 0 && p.route != gone {
		p.room.Wait()
	}
	p.lane = nil
	p.mu.Unlock()
	if p.lanes.broke(l) {
		p.mu.Lock()
		p.writes = Unknown
		p.mu.Unlock()
	}
	p.lanes.leave(l)
}

// addToLane adds a request to the lane, once that has room. It reports false if the session is lost.
func (p *Pipe) addToLane(e entry, raw []byte) bool {
	switch err := p.lane.add(p, e, raw, true); err {
	case nil:
		p.added = true
	case errNoRoom:
		return false
	default:
		<-p.lane.ended // those before these have been told by then
		n := max(1, e.count)
		p.owe(e, n)
		p.lostShared(err, 0, n, false)
	}
	return true
}

// isGone reports whether the session is lost.
func (p *Pipe) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.route == gone
}

// owe notes what the client is owed by its lane, unless that is too much.
func (p *Pipe) owe(e entry, replies int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.route != byLane || p.fullLocked() {
		return false
	}
	p.ledger.push(e)
	p.inFlight += replies
	p.writes = max(p.writes, Elsewhere)
	return true
}

// passShared gives the client what has come of its replies, at most limit of them, on the lane that r reads. It returns what it
// took. It never waits for the client.
func (p *Pipe) passShared(r *replyReader, data []byte, limit int) (n, replies int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.route == gone {
		n, replies, err = r.skip(data, limit)
		p.inFlight -= replies
		return n, replies, err
	}
	n, replies, err = r.sort(p, data, limit)
	p.inFlight -= replies
	if r.size > largeReply {
		p.stay.large = largeFor
	}
	p.within = r.within()
	p.giveLocked(r.out...)
	p.room.Signal()
	return n, replies, err
}

// lostShared answers requests whose lane has ended: first those that may have run, then those that were never sent. The session
// goes on, by another lane, unless the client has been given a part of a reply.
func (p *Pipe) lostShared(err error, mayHaveRun, unsent int, withinReply bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inFlight -= mayHaveRun + unsent
	if p.route == gone {
		return
	}
	text := p.settle(nil, mayHaveRun, &upstream.Error{Addr: p.lanes.upstream.Addr, Sent: true, Err: err})
	text = p.settle(text, unsent, &upstream.Error{Addr: p.lanes.upstream.Addr, Err: err})
	if withinReply {
		p.lose(&upstream.Error{Addr: p.lanes.upstream.Addr, Sent: true, Err: err})
		p.out.conn.Close()
		text = nil
	}
	p.within = false
	p.giveLocked(text)
	p.room.Signal()
}

// settle answers n requests with err, appending to text what the client is told. mu is held.
func (p *Pipe) settle(text []byte, n int, err error) []byte {
	l := &p.ledger
	for ; n > 0 && !l.empty(); n-- {
		e := l.head()
		switch {
		case e.answer != nil:
			e.answer.err = err
			close(e.answer.Done)
		case e.kind == relayed || e.kind == replaced:
			text = append(text, p.encode(err)...)
		}
		if e.count--; e.count == 0 {
			l.pop()
		}
		for e, ok := l.ready(); ok; e, ok = l.ready() {
			if e.answer != nil {
				close(e.answer.Done)
			}
			text = append(text, e.local...)
		}
	}
	return text
}
