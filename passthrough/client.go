package passthrough

import (
	"sync"
	"sync/atomic"
)

// client is what a session, its home and its lane know of one client: the replies that it is owed,
// and from which connection they come.
type client struct {
	pool        *Pool
	encodeError func(error) []byte // makes the reply to a lost request
	out         *clientWriter
	over        atomic.Bool   // route is gone
	doubt       atomic.Uint64 // a doubt: see mustLogIn

	mu        sync.Mutex
	room      *sync.Cond
	pending   pendingQueue // guarded by mu
	route     route        // guarded by mu; changed by setRoute
	lost      error        // guarded by mu; why route is gone
	end       Ending       // guarded by mu; only ever raised
	allSent   bool         // guarded by mu; the session sends nothing more, and has sent no QUIT
	writes    Writes       // guarded by mu
	needsHome homeReasons  // guarded by mu
	inFlight  int          // guarded by mu; missing replies of the lane
	home      *home        // guarded by mu; nil while it isn't open
	where     whereabouts  // guarded by mu; of the home, or of what was used last
	within    bool         // guarded by mu; the client has got only a part of a reply
	pushes    []byte       // guarded by mu; wait for the end of that reply
}

// Ending says when a session's connections end: see End.
type Ending uint8

const (
	notEnding    Ending = iota // the session does not end
	WhenAnswered               // the client is closed once nothing is owed to it
	ClientGone                 // the client has closed: an end of the upstream is no loss
	AtOnce                     // nothing
)

// route is the connection by which a session's requests go and its replies come.
type route uint8

const (
	byHome route = iota
	byLane
	dropped // the home was lost after Route: until the next one, requests are answered as lost
	gone    // nowhere: client.lost says why
)

// setRoute changes the route, unless something is in flight on the old one. mu is held.
func (c *client) setRoute(to route) (changed bool) {
	switch {
	case to == c.route:
		return true
	case c.route == gone:
		return false
	case to == byLane:
		changed = c.route == byHome && c.pending.empty() && !c.within
	case c.route == byLane:
		changed = to == gone || to == byHome && c.inFlight == 0
	default:
		changed = true
	}
	if changed {
		c.route = to
		c.over.Store(to == gone)
	}
	return changed
}

// Writes says by which connections the session's requests have gone so far.
type Writes uint8

const (
	AtHome    Writes = iota // by the home that is open
	Elsewhere               // some by a lane, or by an earlier home
	Unknown                 // some by one that was lost, or to another server: they may be lost
)

// homeReasons are why a session stays at its home, in addition to State.
type homeReasons struct {
	pinned bool // see Pin
	kept   bool // likewise
	open   bool // a request has begun, and its end may never come
	large  int  // how many more requests go there, because of large ones
}

func (s *homeReasons) any() bool { return s.pinned || s.kept || s.open || s.large > 0 }

// fullLocked reports whether the client is owed so much that the next request must wait. mu is
// held.
func (c *client) fullLocked() bool {
	most := maxInFlight
	if c.home == nil {
		most = maxHomeless
	}
	return c.route != gone && (c.pending.len() >= maxEntries || c.pending.held >= maxHeld ||
		c.route == byLane && c.inFlight >= most)
}

// expectOnLane adds what the client is owed by its lane. mu is held.
func (c *client) expectOnLane(e pendingReply) {
	c.pending.push(e)
	c.inFlight += e.replies()
	c.writes = max(c.writes, Elsewhere)
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
	n, replies, err = r.cut(&c.pending, data, limit)
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

// sendLocked gives the client pieces and, between two replies, the pushes that had to wait. It
// closes the client if it is ending and nothing more is owed. If only Redis knows what is owed, it
// closes the home behind that. mu is held.
func (c *client) sendLocked(pieces ...[]byte) {
	if !c.within && len(c.pushes) > 0 {
		pieces = append(pieces, c.pushes)
		c.pushes = nil
	}
	ends := c.end == WhenAnswered
	if ends && (c.pending.empty() && !c.pending.Has(Untracked) || c.route == gone) {
		c.out.finish(pieces...)
		return
	}
	if ends && c.pending.Has(Untracked) && c.allSent {
		c.closeHomeLocked()
	}
	c.out.send(pieces...)
}

// maxPushes bounds what waits in pushes, and what a home reads ahead of its lane, bytes.
const maxPushes = 64 << 10

// pushLocked is Push with mu held.
func (c *client) pushLocked(text []byte) (ok bool) {
	if !c.within {
		c.out.send(text)
		return true
	}
	if len(c.pushes)+len(text) > maxPushes {
		return false
	}
	c.pushes = append(c.pushes, text...)
	return true
}
