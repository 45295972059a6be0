package lockcmd

import (
	"container/list"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
)

// queues are the clients that wait here, and those that compete with them, by the lock.
type queues struct {
	waiters    atomic.Int64    // for any lock
	waitedKeys *foreign.Filter // of all queues
	// unsubscribed says that no release notification can come: no connection is subscribed yet, or
	// after a failure. A release takes a proxy that should hear of it and does not for ended.
	// releaseNotifications sets it.
	unsubscribed atomic.Bool
	ways         *background.Ways

	mu      sync.Mutex
	of      map[names.Lock]*waitQueue // guarded by mu; one is empty until its last waiter has ended
	foreign foreignClients            // guarded by mu
	alls    list.List                 // guarded by mu; of *allWaiter, in order of arrival
	delayed delayedSets               // guarded by mu
	asking  map[string]*waiter        // guarded by mu; by the connection; of a LOCKALL its lead
}

func newQueues() *queues {
	qs := &queues{
		waitedKeys: foreign.NewFilter(), ways: &background.Ways{},
		of: map[names.Lock]*waitQueue{}, foreign: foreignClients{}, delayed: delayedSets{},
		asking: map[string]*waiter{},
	}
	qs.unsubscribed.Store(true)
	return qs
}

// Waiting reports whether any client waits for a lock.
func (qs *queues) Waiting() bool { return qs.waiters.Load() > 0 }

func (qs *queues) waitedFor(id names.Lock) bool {
	if !qs.Waiting() {
		return false
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.of[id] != nil
}

// queueLocked returns the queue of a lock, a new one if there is none. mu is held.
func (qs *queues) queueLocked(id names.Lock) *waitQueue {
	q := qs.of[id]
	if q == nil {
		q = &waitQueue{lease: maxPoll}
		qs.of[id] = q
		qs.waitedKeys.Add(id.Key, 1)
	}
	return q
}

// leaveLocked takes w out of its queue. It reports whether waitsNoMore must follow: w was the last
// there, was not served, and others may go on waiting for it. mu is held.
func (qs *queues) leaveLocked(w *waiter) (missed bool) {
	q := qs.of[w.id()]
	if q == nil {
		return false
	}
	q.leave(w)
	if q.len() > 0 {
		return false
	}
	delete(qs.of, w.id())
	qs.waitedKeys.Add(w.Key, -1)
	return w.state != granted && (w.pollNow || q.listed)
}

// offer decides what a release by an identity does for the waiters of a lock, and marks those that
// it names. If it does not hand over, the first to poll takes the lock. compete says that foreign
// clients do.
func (qs *queues) offer(
	id names.Lock, as names.Identity, handsOver bool,
) (offer handOver, compete bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q, now := qs.of[id], time.Now()
	compete = qs.foreign.compete(id, now)
	switch {
	case q == nil || q.first() == nil:
		offer.kind = "none"
	case !handsOver:
		offer.kind = "gap"
	default:
		offer = q.offer(as, compete && !qs.foreign.makeUp(id), now)
	}
	if offer.kind == "free" {
		qs.foreign.leftFree(id, now) // before anybody hears of it
	}
	return offer, compete
}

// noWaiter is an identity that no waiter has: offer names none.
var noWaiter = names.Identity{DB: -1}

// stateOf is the state of a waiter.
func (qs *queues) stateOf(w *waiter) waiterState {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.state
}

// outcome reports whether w has the lock, or the value. It fails if w was rejected.
func (qs *queues) outcome(w *waiter) (ended bool, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.state == granted || w.state == served, w.rejected
}

// ended reports whether w has the lock, or the value.
func (qs *queues) ended(w *waiter) bool {
	ended, _ := qs.outcome(w)
	return ended
}

// takeOwnerHolds reports whether w's owner seems to have the lock, and clears that: one check is
// enough.
func (qs *queues) takeOwnerHolds(w *waiter) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	defer func() { w.ownerHolds = false }()
	return w.ownerHolds
}

// shouldPoll reports whether w is first and must poll now.
func (qs *queues) shouldPoll(w *waiter, timeToPoll bool) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.place != nil && qs.of[w.id()].first() == w && (timeToPoll || w.pollNow)
}

// position reports whether w is first, and then the lease that was last granted here.
func (qs *queues) position(w *waiter) (first bool, lease time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of[w.id()]
	if w.place == nil || q.first() != w {
		return false, 0
	}
	return true, q.lease
}

// foreignCompete is foreignClients.compete for a caller that does not hold mu.
func (qs *queues) foreignCompete(id names.Lock) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.foreign.compete(id, time.Now())
}

// waitsAs is how this proxy waits for a lock: `how` in the lock record.
func (qs *queues) waitsAs(key string, foreignCompete bool) string {
	how := 32 * qs.ways.Steps(key)
	switch {
	case foreignCompete:
		how++
	case qs.unsubscribed.Load():
		how += 2
	}
	return strconv.FormatInt(how, 10)
}

// Waiter is a client that waits for a lock.
type Waiter struct {
	Owner, Client string
	Name          string // of the connection
	Mode          string // "exclusive" or "shared"
	Since         time.Time
	Until         time.Time // zero is never
}

// Waiters returns up to limit of the clients that wait for a lock at this proxy, in order.
func (qs *queues) Waiters(id names.Lock, limit int) (list []Waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of[id]
	if q == nil {
		return nil
	}
	for place := q.waiters.Front(); place != nil && len(list) < limit; place = place.Next() {
		w := place.Value.(*waiter)
		list = append(list, Waiter{w.Owner, w.Client, w.Name, w.Mode(), w.joined, w.until})
	}
	return list
}
