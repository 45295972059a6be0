package passthrough

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
	if p.lane == nil || p.lane.kind != kind || p.asked == 0 && !p.lane.serves() {
		p.leaveLane()
		var opening <-chan struct{}
		p.lane, opening = p.lanes.join(p, kind)
		if p.lane == nil && opening != nil && p.lanes.upstream.IsCluster() {
			<-opening // within dialTimeout
			p.lane, _ = p.lanes.join(p, kind)
		}
		if p.lane == nil {
			return false
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.setRoute(byLane) {
		return false // a push has begun to come by the home meanwhile
	}
	p.writes = max(p.writes, Elsewhere)
	return true
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
	if p.lane == nil {
		return
	}
	p.Flush()
	p.mu.Lock()
	for p.inFlight > 0 && p.route != gone {
		p.room.Wait()
	}
	p.mu.Unlock()
	if p.lanes.broke(p.lane) {
		p.mu.Lock()
		p.writes = Unknown
		p.mu.Unlock()
	}
	p.lanes.leave(p.lane)
	p.lane = nil
}

// submit hands requests to the lane.
func (p *Pipe) submit(raw []byte) {
	n := p.asked
	p.asked = 0
	p.mu.Lock()
	lost := p.route == gone
	p.waitsAt = p.lane
	p.mu.Unlock()
	if lost {
		return
	}
	if err := p.lane.submit(p, raw, n); err != nil {
		<-p.lane.ended // those before these have been told by then
		p.lostShared(err, 0, n, false)
	}
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
	text := p.settle(nil, mayHaveRun, &Error{Addr: p.lanes.upstream.Addr, Sent: true, Err: err})
	text = p.settle(text, unsent, &Error{Addr: p.lanes.upstream.Addr, Err: err})
	if withinReply {
		p.lose(&Error{Addr: p.lanes.upstream.Addr, Sent: true, Err: err})
		p.client.Close()
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
