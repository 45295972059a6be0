package passthrough

// How a session goes by a lane, which it shares with other sessions.

import (
	"runtime"
	"sync/atomic"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/upstream"
)

const (
	// maxInFlight is how many replies a session may be waiting for on a lane: others' requests
	// stand behind these.
	maxInFlight = 1024
	// maxBacklog is how much a client may leave unread before it goes on by a connection of its
	// own, bytes: there the upstream keeps its replies, as it does for its own clients, and the
	// proxy's memory and files have only what was asked before.
	maxBacklog = overflowMemory
	// largeFor is how many further requests a session with large requests or replies keeps its own
	// connection.
	largeFor = 256
)

// laneSide is a session's way to lanes.
type laneSide struct {
	*client
	lane    *lane       // that it uses, nil if none; written by the session with mu held, so it reads it without
	added   bool        // the lane has something of the session's that may not have been sent
	scripts bool        // the session has run scripts of its client's
	aloneIn poolKey     // what alone is about; written before that is set
	alone   atomic.Bool // no other session asks for a lane of that kind
}

// chooseLocked reports whether a request may go by a lane now, and of which kind that must be. mu
// is held.
func (s *laneSide) chooseLocked(way Way) (shares bool, kind poolKey) {
	if s.pool.LanesPerKey > 0 && s.out.backlogged() {
		s.needsHome.large = largeFor
	}
	s.scripts = s.scripts || way == Scripts
	free := s.route == byLane || s.route == byHome && s.pending.empty() && !s.within
	shares = free && way != Home && s.pool.LanesPerKey > 0 && s.pool.sharing.allowed() && !s.needsHome.any() && s.pending.Shareable()
	return shares, poolKey{s.pending.Identity, s.scripts}
}

// useLane has what comes next go by a lane of this kind, and reports whether there is one.
func (s *laneSide) useLane(kind poolKey) bool {
	if s.lane == nil || s.lane.key != kind || !s.lane.serves() {
		s.leaveLane()
		opening := s.join(kind)
		if s.lane == nil && opening != nil && s.pool.Upstream.IsCluster() {
			<-opening // within DialTimeout
			s.join(kind)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lane != nil && s.setRoute(byLane) // if no push has begun to come by the home meanwhile
}

// join joins a lane of this kind, if there is one, and otherwise returns what tells when one may
// be.
func (s *laneSide) join(kind poolKey) (opening <-chan struct{}) {
	l, opening := s.pool.join(s, kind)
	if l != nil {
		s.mu.Lock()
		s.lane = l
		s.mu.Unlock()
	}
	return opening
}

// leaveLane waits until the session has all its replies, and leaves.
func (s *laneSide) leaveLane() {
	l := s.lane
	if l == nil {
		return
	}
	s.flushLane()
	s.mu.Lock()
	for s.inFlight > 0 && s.route != gone {
		s.room.Wait()
	}
	s.lane = nil
	s.mu.Unlock()
	if s.pool.laneBroke(l) {
		s.mu.Lock()
		s.writes = Unknown
		s.mu.Unlock()
	}
	s.pool.leave(l)
}

// addToLane adds a request to the lane, once that has room. It reports false if the session is
// lost.
func (s *laneSide) addToLane(e pendingReply, raw []byte) bool {
	switch err := s.lane.add(s.client, e, raw, true); err {
	case nil:
		s.added = true
	case errNoRoom:
		return false
	default:
		<-s.lane.ended // those before these have been told by then
		n := max(1, e.count)
		if !s.expectOnLane(e, n) {
			return false
		}
		s.laneLost(err, 0, n, false)
	}
	return true
}

// flushLane has the lane send what was added. It yields before that, so that all sessions that have
// something to ask add to it: one write, and one read of the upstream's, for many requests.
func (s *laneSide) flushLane() {
	if s.added {
		s.added = false
		runtime.Gosched()
		s.lane.Flush()
	}
}

// tryLane gathers requests on the session's lane, to be sent when the iteration ends.
func (s *laneSide) tryLane(e pendingReply, raw []byte, it *eventloop.Iteration) bool {
	l := s.lane
	if l.socket == nil || l.reg == nil || !l.serves() || l.add(s.client, e, raw, false) != nil {
		return false
	}
	it.AtEnd(l)
	return true
}

// passShared gives the client what has come of its replies, at most limit of them, on the lane that
// r reads. It returns what it took. It never waits for the client.
func (c *client) deliverFromLane(r *demux, data []byte, limit int) (n, replies int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.route == gone {
		n, replies, err = r.skip(data, limit)
		c.inFlight -= replies
		return n, replies, err
	}
	n, replies, err = r.cut(c, data, limit)
	c.inFlight -= replies
	if r.size > largeReply {
		c.needsHome.large = largeFor
	}
	c.within = r.within()
	c.sendLocked(r.out...)
	c.room.Signal()
	return n, replies, err
}

// lostShared answers requests whose lane has ended: first those that may have run, then those that
// were never sent. The session goes on, by another lane, unless the client has been given a part of
// a reply.
func (c *client) laneLost(err error, mayHaveRun, unsent int, withinReply bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight -= mayHaveRun + unsent
	if c.route == gone {
		return
	}
	text := c.failNext(nil, mayHaveRun, &upstream.Error{Addr: c.pool.Upstream.Addr, Sent: true, Err: err})
	text = c.failNext(text, unsent, &upstream.Error{Addr: c.pool.Upstream.Addr, Err: err})
	if withinReply {
		c.loseUpstream(&upstream.Error{Addr: c.pool.Upstream.Addr, Sent: true, Err: err})
		c.out.conn.Close()
		text = nil
	}
	c.within = false
	c.sendLocked(text)
	c.room.Signal()
}
