package passthrough

// One session uses lanes here.

import (
	"context"
	"errors"
	"runtime"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/monotonic"
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
	c       *client
	lane    *lane // nil for none; the session writes it with mu held, and reads it without
	added   bool  // the lane may hold requests of the session that were not sent
	scripts bool  // the client has run scripts
	alone   alone
}

// laneChoice says by which lane a request can go.
type laneChoice struct {
	shares bool // by one of this kind
	kind   poolKey
	apart  bool // though the home tracks keys: see Apart
	waits  bool // for a lane to be opened, even if there is a home
}

// noteLocked notes what says for how long the session stays at home, and which lanes it uses. mu is
// held.
func (s *laneSide) noteLocked(way Way) {
	if s.c.pool.LanesPerKey > 0 && s.c.out.backlogged() {
		s.c.needsHome.large = largeFor
	}
	s.scripts = s.scripts || way == Scripts
}

// chooseLocked returns the lane by which a request can go now. It changes nothing. mu is held.
func (s *laneSide) chooseLocked(r *Request) (to laneChoice) {
	c, way := s.c, r.Way
	free := c.route == byLane || c.route == byHome && c.pending.empty() && !c.within
	to.apart = way == Apart && s.keepsApart()
	to.shares = free && way != Home && way != NewHome && c.pool.LanesPerKey > 0 &&
		c.pool.sharing.allowed() && !c.needsHome.any() && (c.pending.Shareable() || to.apart)
	to.kind = poolKey{Identity: c.pending.Identity, Scripts: s.scripts}
	if way == Greets {
		to.kind = poolKey{Identity: r.after(c.pending.Identity), Greets: true}
		to.shares = to.shares && c.home == nil && !c.pool.spread &&
			(c.pending.own() || c.pool.homes.open.Load() > calmHomes)
	}
	to.waits = to.apart || c.pool.Upstream.LearnsByLogin()
	return to
}

// keepsApart reports whether Apart differs from Shared for the client. mu is held.
func (s *laneSide) keepsApart() bool { return s.c.pool.LanesPerKey > 0 && s.c.pending.onlyTracks() }

// useLane sets the route to another lane, and reports whether there is one, and in an event loop
// whether it need not wait. An error says that none could be opened for a session that has no home,
// and why it would get none either.
func (s *laneSide) useLane(
	ctx context.Context, to laneChoice, it *eventloop.Iteration,
) (uses bool, err error) {
	if !s.leaveLane(it) {
		return false, nil
	}
	opening, homeless := s.join(to)
	if s.lane == nil && opening != nil && it == nil && (homeless || to.waits) {
		if err := s.awaitLane(ctx, opening, homeless); err != nil {
			return false, err
		}
		s.join(to)
	}
	if to.apart && s.lane == nil && s.awaitWhere() {
		s.join(to)
	}
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	// fails if a push by the home has begun meanwhile
	return s.lane != nil && s.c.setRoute(byLane), nil
}

// awaitLane waits while a lane is being opened. The error is useLane's.
func (s *laneSide) awaitLane(ctx context.Context, opening *opening, homeless bool) error {
	loopguard.MayWait()
	var patience <-chan time.Time
	if s.c.pool.spread && !s.c.pool.Upstream.LearnsByLogin() {
		patience = time.After(s.c.pool.patience()) // by a home the client can use nodes that answer
	}
	select {
	case <-opening.ended: // within DialTimeout
	case <-patience:
		return nil
	case <-ctx.Done():
		return &upstream.Error{Addr: s.c.pool.Upstream.Addr, Err: context.Cause(ctx)}
	}
	var failed *upstream.Error
	if homeless && !s.c.pool.spread && errors.As(opening.err, &failed) {
		return failed
	}
	return nil
}

// awaitWhere waits while the home is asked which server it leads to. It reports whether it was.
func (s *laneSide) awaitWhere() (asked bool) {
	loopguard.MayWait()
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for s.c.where.asking && s.c.home != nil && s.c.route != gone {
		asked = true
		s.c.room.Wait()
	}
	return asked
}

// join is Pool.join. It also reports whether the session has no home.
func (s *laneSide) join(to laneChoice) (opening *opening, homeless bool) {
	s.c.mu.Lock()
	where := s.c.where
	where.home, where.apart = s.c.home != nil, to.apart
	s.c.mu.Unlock()
	l, question, opening := s.c.pool.join(&s.alone, to.kind, &where)
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	switch {
	case l != nil:
		s.lane = l
		if s.c.home == nil {
			s.c.goesByLocked(l)
		}
	case question != nil:
		s.c.askWhereLocked(question)
	}
	return opening, !where.home
}

// askWhereLocked asks the home which server it leads to, unless it has just been asked. mu is held.
func (c *client) askWhereLocked(question []byte) {
	w := &c.where
	if w.asking || w.askedAt != 0 && monotonic.Since(w.askedAt) < refusalPause {
		return
	}
	took := func(raw []byte) {
		w.asking, w.askedAt = false, monotonic.Now()
		w.server.Learn(raw)
	}
	w.asking = c.asideLocked(pendingReply{kind: internal, took: took}, question)
}

// goesByLocked records where a session without a home goes. mu is held.
func (c *client) goesByLocked(l *lane) {
	if same, known := c.where.lanes(l); !same || !known {
		c.writes = Unknown
	}
	c.where = whereabouts{server: l.server, known: true, term: l.term}
}

// leaveLaneLocked is leaveLane with mu held, but not while it waits.
func (s *laneSide) leaveLaneLocked(it *eventloop.Iteration) (left bool) {
	s.c.mu.Unlock()
	defer s.c.mu.Lock()
	return s.leaveLane(it)
}

// leaveLane waits for all replies of the lane, and leaves it. In an event loop it reports false if it
// would have to wait.
func (s *laneSide) leaveLane(it *eventloop.Iteration) (left bool) {
	l := s.lane
	s.c.mu.Lock()
	s.flushLocked()
	for s.c.inFlight > 0 && s.c.route != gone {
		if it != nil {
			s.c.mu.Unlock()
			return false
		}
		loopguard.MayWait()
		s.c.room.Wait()
	}
	s.lane = nil
	s.c.mu.Unlock()
	if l != nil && s.c.pool.leave(l) { // without a lane, a judge may have owed something
		s.c.mu.Lock()
		s.c.writes = Unknown
		s.c.mu.Unlock()
	}
	return true
}

// addLocked adds a request to the lane. It returns false if the session is lost. It waits for room;
// in an event loop it returns false then. mu is held, but not while it waits.
func (s *laneSide) addLocked(e pendingReply, raw []byte, it *eventloop.Iteration) (added bool) {
	if it != nil && (!s.lane.writesAtOnce() || !s.lane.serves()) {
		return false
	}
	err := s.lane.add(s.c, e, raw, it != nil)
	for ; err == errNoRoom && it == nil; err = s.lane.add(s.c, e, raw, false) {
		if s.c.route != byLane {
			return false
		}
		s.c.mu.Unlock()
		s.lane.awaitRoom(s.c)
		s.c.mu.Lock()
	}
	switch {
	case err == nil && it != nil:
		it.AtEnd(s.lane)
	case err == nil:
		s.added = true
	case it != nil:
		return false
	default:
		loopguard.MayWait()
		s.c.mu.Unlock()
		<-s.lane.ended // then earlier requests have been answered
		s.c.mu.Lock()
		if s.c.route != byLane {
			return false
		}
		s.c.expectOnLane(e)
		s.c.laneLostLocked(err, 0, e.replies(), false)
	}
	return true
}

// flushLocked makes the lane send what was added. It yields to other sessions first, so that one
// write holds the requests of many. mu is held, but not meanwhile.
func (s *laneSide) flushLocked() {
	if s.added {
		s.added = false
		s.c.mu.Unlock()
		runtime.Gosched()
		s.lane.Flush()
		s.c.mu.Lock()
	}
}
