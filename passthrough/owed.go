package passthrough

import (
	"math"
	"sync"

	"lockproxy/internal/commands"
)

// owed is what one client is owed, and how that comes: what a session, its home and its lane have
// in common.
type owed struct {
	lanes  *Lanes
	encode func(error) []byte // makes the reply to a request that was lost
	out    *outbox

	mu       sync.Mutex
	room     *sync.Cond
	ledger   ledger // guarded by mu
	route    route  // guarded by mu; changed by setRoute
	lost     error  // guarded by mu; why route is gone
	end      Ending // guarded by mu; only ever raised
	writes   Writes // guarded by mu
	stay     stay   // guarded by mu
	inFlight int    // guarded by mu; replies still to come by lane, or to be taken back
	home     *home  // guarded by mu; nil while it isn't open
	need     need   // guarded by mu; of the home
	delivery        // guarded by mu
}

// delivery is what the client is given besides whole replies.
type delivery struct {
	within bool   // it has been given a part of a reply
	pushes []byte // wait for the end of that reply
}

// route is how a session's requests go, and how what it is owed comes.
type route uint8

const (
	byHome  route = iota
	byLane        // by a connection that others use too
	dropped       // the home was lost since Connect: what follows is answered as lost until that is called again
	gone          // nowhere any more: lost says why
)

// setRoute changes the route, if nothing is in flight on the old one. mu is held.
func (o *owed) setRoute(to route) (changed bool) {
	switch {
	case to == o.route:
		return true
	case o.route == gone:
		return false
	case to == byLane:
		changed = o.route == byHome && o.ledger.empty() && !o.within
	case o.route == byLane:
		changed = to == gone || to == byHome && o.inFlight == 0
	default:
		changed = true
	}
	if changed {
		o.route = to
	}
	return changed
}

// Writes says where the requests have gone that the session has sent so far.
type Writes uint8

const (
	AtHome    Writes = iota // by the home that is open
	Elsewhere               // some by a lane, or by an earlier home
	Unknown                 // some by a connection that was lost since, or to another server: the upstream may not have them
)

// stay is why a session stays at its home though State doesn't tell why.
type stay struct {
	pinned bool // see Pin
	begun  bool // a request was begun whose end may never come
	large  int  // for how many requests it does because of large ones
}

func (s *stay) any() bool { return s.pinned || s.begun || s.large > 0 }

// fullLocked reports whether the client is owed so much that it is owed nothing more for now. mu is
// held.
func (o *owed) fullLocked() bool {
	return o.route != gone && (o.ledger.len() >= maxEntries || o.route == byLane && o.inFlight >= maxInFlight)
}

// isGone reports whether the session is lost.
func (o *owed) isGone() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.route == gone
}

// owe notes what the client is owed by its lane, unless that is too much.
func (o *owed) owe(e entry, replies int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.route != byLane || o.fullLocked() {
		return false
	}
	o.ledger.push(e)
	o.inFlight += replies
	o.writes = max(o.writes, Elsewhere)
	return true
}

// push notes what the client is owed, by the home or as lost.
func (o *owed) push(e entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ledger.push(e)
	if e.Effect == commands.Quit {
		o.end = max(o.end, WhenAnswered)
	}
	switch {
	case o.route == gone:
		o.settleLost()
	case o.route == dropped && e.Effect != commands.NoEffect: // what comes behind it may mean something else without it
		text, awaited := o.lose(o.neverSent())
		if !awaited {
			o.end = max(o.end, WhenAnswered)
		}
		o.giveLocked(text)
	case o.route == dropped:
		o.giveLocked(o.settle(nil, math.MaxInt, o.neverSent()))
	default:
		o.stay.large = max(0, o.stay.large-max(1, e.count))
	}
}

// giveLocked gives the client pieces and, between two replies, the pushes that had to wait. It
// closes the client with them if that was all that is owed to it. mu is held.
func (o *owed) giveLocked(pieces ...[]byte) {
	if !o.within && len(o.pushes) > 0 {
		pieces = append(pieces, o.pushes)
		o.pushes = nil
	}
	if o.end == WhenAnswered && o.nothingOwed() {
		o.out.finish(pieces...)
		return
	}
	o.out.send(pieces...)
}

// nothingOwed reports whether the client waits for nothing. mu is held.
func (o *owed) nothingOwed() bool { return o.ledger.empty() || o.route == gone }

// maxPushes bounds what waits in pushes, bytes.
const maxPushes = 64 << 10

// pushLocked is Push with mu held.
func (o *owed) pushLocked(text []byte) (ok bool) {
	if !o.within {
		o.out.send(text)
		return true
	}
	if len(o.pushes)+len(text) > maxPushes {
		return false
	}
	o.pushes = append(o.pushes, text...)
	return true
}
