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
	maxBacklog = spoolMemory
	// largeFor is how many further requests a session with large requests or replies keeps its own
	// connection.
	largeFor = 256
)

// laneWay is a session's way to lanes.
type laneWay struct {
	*owed
	lane    *lane       // that it uses, nil if none; written by the session with mu held, so it reads it without
	added   bool        // the lane has something of the session's that may not have been sent
	scripts bool        // the session has run scripts of its client's
	aloneIn laneKind    // what alone is about; written before that is set
	alone   atomic.Bool // no other session asks for a lane of that kind
}

// chooseLocked reports whether a request may go by a lane now, and of which kind that must be. mu
// is held.
func (w *laneWay) chooseLocked(way Way) (shares bool, kind laneKind) {
	if w.lanes.perIdentity > 0 && w.out.backlogged() {
		w.stay.large = largeFor
	}
	w.scripts = w.scripts || way == Scripts
	free := w.route == byLane || w.route == byHome && w.ledger.empty() && !w.within
	shares = free && way != Own && w.lanes.maySessionsShare() && !w.stay.any() && w.ledger.Shareable()
	return shares, laneKind{w.ledger.Identity, w.scripts}
}

// useLane has what comes next go by a lane of this kind, and reports whether there is one.
func (w *laneWay) useLane(kind laneKind) bool {
	if w.lane == nil || w.lane.kind != kind || !w.lane.serves() {
		w.leaveLane()
		opening := w.join(kind)
		if w.lane == nil && opening != nil && w.lanes.upstream.IsCluster() {
			<-opening // within dialTimeout
			w.join(kind)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lane != nil && w.setRoute(byLane) // if no push has begun to come by the home meanwhile
}

// join joins a lane of this kind, if there is one, and otherwise returns what tells when one may
// be.
func (w *laneWay) join(kind laneKind) (opening <-chan struct{}) {
	l, opening := w.lanes.join(w, kind)
	if l != nil {
		w.mu.Lock()
		w.lane = l
		w.mu.Unlock()
	}
	return opening
}

// leaveLane waits until the session has all its replies, and leaves.
func (w *laneWay) leaveLane() {
	l := w.lane
	if l == nil {
		return
	}
	w.flushLane()
	w.mu.Lock()
	for w.inFlight > 0 && w.route != gone {
		w.room.Wait()
	}
	w.lane = nil
	w.mu.Unlock()
	if w.lanes.broke(l) {
		w.mu.Lock()
		w.writes = Unknown
		w.mu.Unlock()
	}
	w.lanes.leave(l)
}

// addToLane adds a request to the lane, once that has room. It reports false if the session is
// lost.
func (w *laneWay) addToLane(e entry, raw []byte) bool {
	switch err := w.lane.add(w.owed, e, raw, true); err {
	case nil:
		w.added = true
	case errNoRoom:
		return false
	default:
		<-w.lane.ended // those before these have been told by then
		n := max(1, e.count)
		if !w.owe(e, n) {
			return false
		}
		w.lostShared(err, 0, n, false)
	}
	return true
}

// flushLane has the lane send what was added. It yields before that, so that all sessions that have
// something to ask add to it: one write, and one read of the upstream's, for many requests.
func (w *laneWay) flushLane() {
	if w.added {
		w.added = false
		runtime.Gosched()
		w.lane.Flush()
	}
}

// tryLane gathers requests on the session's lane, to be sent when the iteration ends.
func (w *laneWay) tryLane(e entry, raw []byte, it *eventloop.Iteration) bool {
	l := w.lane
	if l.socket == nil || l.reg == nil || !l.serves() || l.add(w.owed, e, raw, false) != nil {
		return false
	}
	it.AtEnd(l)
	return true
}

// passShared gives the client what has come of its replies, at most limit of them, on the lane that
// r reads. It returns what it took. It never waits for the client.
func (o *owed) passShared(r *replyReader, data []byte, limit int) (n, replies int, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.route == gone {
		n, replies, err = r.skip(data, limit)
		o.inFlight -= replies
		return n, replies, err
	}
	n, replies, err = r.sort(o, data, limit)
	o.inFlight -= replies
	if r.size > largeReply {
		o.stay.large = largeFor
	}
	o.within = r.within()
	o.giveLocked(r.out...)
	o.room.Signal()
	return n, replies, err
}

// lostShared answers requests whose lane has ended: first those that may have run, then those that
// were never sent. The session goes on, by another lane, unless the client has been given a part of
// a reply.
func (o *owed) lostShared(err error, mayHaveRun, unsent int, withinReply bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.inFlight -= mayHaveRun + unsent
	if o.route == gone {
		return
	}
	text := o.settle(nil, mayHaveRun, &upstream.Error{Addr: o.lanes.upstream.Addr, Sent: true, Err: err})
	text = o.settle(text, unsent, &upstream.Error{Addr: o.lanes.upstream.Addr, Err: err})
	if withinReply {
		o.lose(&upstream.Error{Addr: o.lanes.upstream.Addr, Sent: true, Err: err})
		o.out.conn.Close()
		text = nil
	}
	o.within = false
	o.giveLocked(text)
	o.room.Signal()
}
