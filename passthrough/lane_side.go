package passthrough

// How one session uses lanes.

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/upstream"
)

const (
	// maxInFlight bounds the replies that a session waits for on a lane: others' wait behind them.
	maxInFlight = 1024
	// maxHomeless is maxInFlight for a session without a home. If it leaves them unread it must first
	// get one, and until then all that it has asked for comes here.
	maxHomeless = 64
	// maxBacklog is how much a client can leave unread before it goes on at home, bytes. There
	// Redis keeps its replies.
	maxBacklog = overflowMemory
	// largeFor is for how many further requests a session with large requests or replies stays at
	// home.
	largeFor = 256
)

// laneSide is a session's way to lanes.
type laneSide struct {
	*client
	lane    *lane       // nil for none; the session writes it with mu held, and reads it without
	added   bool        // the lane may hold requests of the session that were not sent
	scripts bool        // the client has run scripts
	aloneIn poolKey     // the key that alone is about; written before alone
	alone   atomic.Bool // no other session asks for a lane of that key
}

// chooseLocked reports whether a request can go by a lane now, and by which. mu is held.
func (s *laneSide) chooseLocked(way Way) (shares bool, kind poolKey) {
	if s.pool.LanesPerKey > 0 && s.out.backlogged() {
		s.needsHome.large = largeFor
	}
	s.scripts = s.scripts || way == Scripts
	free := s.route == byLane || s.route == byHome && s.pending.empty() && !s.within
	shares = free && way != Home && way != NewHome && s.pool.LanesPerKey > 0 &&
		s.pool.sharing.allowed() && !s.needsHome.any() &&
		(s.pending.Shareable() || way == Apart && s.keepsApart())
	return shares, poolKey{s.pending.Identity, s.scripts}
}

// keepsApart reports whether Apart differs from Shared for the client. mu is held.
func (s *laneSide) keepsApart() bool { return s.pool.LanesPerKey > 0 && s.pending.onlyTracks() }

// isOn reports whether the session has a lane of a kind, that it can go on using.
func (s *laneSide) isOn(kind poolKey) bool {
	return s.lane != nil && s.lane.key == kind && s.lane.serves()
}

// waitsForLane reports whether useLane waits for a lane, though there is a home: see Apart.
func (s *laneSide) waitsForLane(kind poolKey, apart bool) bool {
	return !s.isOn(kind) && (apart || s.pool.Upstream.LearnsByLogin())
}

// useLane sets the route to a lane, and reports whether there is one, and in an event loop whether
// it need not wait. An error says that none could be opened for a session that has no home, and why
// it would get none either.
func (s *laneSide) useLane(
	ctx context.Context, kind poolKey, apart bool, it *eventloop.Iteration,
) (uses bool, err error) {
	if !s.isOn(kind) {
		if !s.leaveLane(it) {
			return false, nil
		}
		opening, homeless := s.join(kind, apart)
		if s.lane == nil && opening != nil && it == nil &&
			(homeless || apart || s.pool.Upstream.LearnsByLogin()) {
			if err := s.awaitLane(ctx, opening, homeless); err != nil {
				return false, err
			}
			s.join(kind, apart)
		}
		if apart && s.lane == nil && s.awaitWhere() {
			s.join(kind, apart)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// fails if a push by the home has begun meanwhile
	return s.lane != nil && s.setRoute(byLane), nil
}

// awaitLane waits while a lane is being opened. The error is useLane's.
func (s *laneSide) awaitLane(ctx context.Context, opening *opening, homeless bool) error {
	loopguard.MayWait()
	defer s.waits()()
	whole := s.pool.Upstream.IsCluster()
	var patience <-chan time.Time
	if whole && !s.pool.Upstream.LearnsByLogin() {
		// a lane takes all masters; by a home the client can use those that answer
		timer := time.NewTimer(s.pool.patience())
		defer timer.Stop()
		patience = timer.C
	}
	select {
	case <-opening.ended: // within DialTimeout
	case <-patience:
		return nil
	case <-ctx.Done():
		return &upstream.Error{Addr: s.pool.Upstream.Addr, Err: context.Cause(ctx)}
	}
	var failed *upstream.Error
	if homeless && !whole && errors.As(opening.err, &failed) {
		return failed
	}
	return nil
}

// awaitWhere waits while the home is asked which server it leads to. It reports whether it was.
func (s *laneSide) awaitWhere() (asked bool) {
	loopguard.MayWait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.where.asking && s.home != nil && s.route != gone {
		asked = true
		s.room.Wait()
	}
	return asked
}

// join is Pool.join. It also reports whether the session has no home.
func (s *laneSide) join(kind poolKey, apart bool) (opening *opening, homeless bool) {
	s.mu.Lock()
	where := s.where
	where.home, where.apart = s.home != nil, apart
	s.mu.Unlock()
	l, question, opening := s.pool.join(s, kind, &where)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case l != nil:
		s.lane = l
		if s.home == nil {
			s.goesByLocked(l)
		}
	case question != nil:
		s.askWhereLocked(question)
	}
	return opening, !where.home
}

// goesByLocked records where a session without a home goes. mu is held.
func (c *client) goesByLocked(l *lane) {
	if same, known := c.where.lanes(l); !same || !known {
		c.writes = Unknown
	}
	c.where = whereabouts{server: l.server, known: true, term: l.term}
}

// leaveLane waits for all replies of the lane, and leaves it. In an event loop it reports false if it
// would have to wait.
func (s *laneSide) leaveLane(it *eventloop.Iteration) (left bool) {
	l := s.lane
	if l == nil {
		return true
	}
	s.flushLane()
	s.mu.Lock()
	for s.inFlight > 0 && s.route != gone {
		if it != nil {
			s.mu.Unlock()
			return false
		}
		loopguard.MayWait()
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
	return true
}

// addToLane adds a request to the lane. It returns false if the session is lost. It waits for room;
// in an event loop it returns false then.
func (s *laneSide) addToLane(e pendingReply, raw []byte, it *eventloop.Iteration) bool {
	if it != nil && (!s.lane.writesAtOnce() || !s.lane.serves()) {
		return false
	}
	switch err := s.lane.add(s.client, e, raw, it == nil); {
	case err == nil && it != nil:
		it.AtEnd(s.lane)
	case err == nil:
		s.added = true
	case err == errNoRoom, it != nil:
		return false
	default:
		loopguard.MayWait()
		<-s.lane.ended // then earlier requests have been answered
		if !s.expectOnLane(e) {
			return false
		}
		s.laneLost(err, 0, e.replies(), false)
	}
	return true
}

// flushLane makes the lane send what was added. It yields to other sessions first, so that one
// write holds the requests of many.
func (s *laneSide) flushLane() {
	if s.added {
		s.added = false
		runtime.Gosched()
		s.lane.Flush()
	}
}

// deliverFromLane gives the client its replies at the front of data, at most limit. It returns how
// many bytes and whole replies these were. It never waits for the client.
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
	r.forget()
	c.room.Broadcast()
	return n, replies, err
}

// laneLost answers requests whose lane has ended: first those that may have run, then those that
// were never sent. The session goes on, unless the client has got only a part of a reply, or they
// are too many.
func (c *client) laneLost(err error, mayHaveRun, unsent int, withinReply bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight -= mayHaveRun + unsent
	if c.route == gone {
		return
	}
	if mayHaveRun+unsent > maxLost {
		c.homeLostLocked(err, withinReply)
		return
	}
	lost := &upstream.Error{Addr: c.pool.Upstream.Addr, Sent: true, Err: err}
	text := c.failNext(nil, mayHaveRun, lost)
	text = c.failNext(text, unsent, &upstream.Error{Addr: lost.Addr, Err: err})
	if withinReply {
		c.loseUpstream(lost)
		c.out.conn.Close()
		text = nil
	}
	c.within = false
	c.sendLocked(text)
	c.room.Broadcast()
}
