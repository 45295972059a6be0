package queue

import (
	"container/list"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/names"
)

// Queues are the clients that wait here, and those that compete with them, by the lock.
type Queues struct {
	waiters      atomic.Int64    // for any lock
	waitedKeys   *foreign.Filter // of all queues
	unsubscribed atomic.Bool     // see SetSubscribed
	ways         distance

	mu      sync.Mutex
	of      map[names.Lock]*waitQueue // guarded by mu; one is empty until its last waiter has ended
	foreign foreignClients            // guarded by mu
	alls    list.List                 // guarded by mu; of *All, in order of arrival
	delayed delayedSets               // guarded by mu
	asking  map[string]*Waiter        // guarded by mu; by the connection; of a LOCKALL its lead
}

// distance is how far the upstream of a lock is. steps is how the lock record tells it.
type distance interface {
	RoundTrip(key string) time.Duration
	Steps(key string) int64
}

func New(ways distance) *Queues {
	qs := &Queues{
		waitedKeys: foreign.NewFilter(), ways: ways,
		of: map[names.Lock]*waitQueue{}, foreign: foreignClients{}, delayed: delayedSets{},
		asking: map[string]*Waiter{},
	}
	qs.unsubscribed.Store(true)
	return qs
}

// Waiting reports whether any client waits for a lock.
func (qs *Queues) Waiting() bool { return qs.waiters.Load() > 0 }

// Count is how many clients wait.
func (qs *Queues) Count() int { return int(qs.waiters.Load()) }

// SetSubscribed says whether release notifications can come. None can while no connection is
// subscribed: at first, and after a failure. A release takes a proxy that should hear of it and
// does not for ended.
func (qs *Queues) SetSubscribed(is bool) { qs.unsubscribed.Store(!is) }

// MayWait reports whether clients may wait for a lock. It is cheap; false is certain.
func (qs *Queues) MayWait(key []byte) bool { return qs.Waiting() && qs.waitedKeys.May(key) }

// WaitedFor reports whether clients wait for a lock.
func (qs *Queues) WaitedFor(id names.Lock) bool {
	if !qs.Waiting() {
		return false
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.of[id] != nil
}

// arrival is how a waiter has come into the queue of its lock.
type arrival struct {
	First       bool
	Permitted   bool // another has been permitted the same: see waitQueue.join
	ForeignTurn bool // the lock has just been left free for foreign clients
}

// Join puts w at the end of the queue of its lock. It waits for patience; 0 is forever. end must
// follow.
func (qs *Queues) Join(w *Waiter, patience time.Duration) (at arrival) {
	qs.waiters.Add(1)
	w.Joined = time.Now()
	if patience > 0 {
		w.until = w.Joined.Add(patience)
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.queueLocked(w.ID())
	at.Permitted = q.join(w)
	at.First, at.ForeignTurn = q.first() == w, qs.foreign.haveTurn(w.ID(), w.Joined)
	qs.asking[w.Connection] = w
	return at
}

// Departure is how a wait has ended.
type Departure struct {
	Won     bool    // it has the lock
	Found   *string // it has this value instead
	Unknown bool    // it may have been given the lock without knowing
	Missed  bool    // it was the last, and others may go on waiting for this proxy
	PollNow bool    // the lock may be reserved for this proxy
	Err     error
}

// End takes w out of the queue. err is why its wait has failed, if that is known already.
func (qs *Queues) End(w *Waiter, err error) (d Departure) {
	defer qs.waiters.Add(-1)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	d = Departure{Won: w.state == granted, Found: w.found, Unknown: w.unknownOutcome, Err: err}
	if !d.Won {
		w.state = left
	}
	if err == nil {
		d.Err = w.rejected
	}
	delete(qs.asking, w.Connection)
	d.Missed = qs.leaveLocked(w)
	d.PollNow = w.pollNow
	return d
}

// GiveUp notes that w does not want the lock that it has been handed.
func (qs *Queues) GiveUp(w *Waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w.state = left
}

// Reserved makes the first waiter poll: another proxy has reserved the lock for it. It reports
// whether there is one.
func (qs *Queues) Reserved(id names.Lock) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of[id]
	if q != nil {
		q.quota = 0
		q.pollNow()
	}
	return q != nil
}

// MayBeFree makes the first waiter poll.
func (qs *Queues) MayBeFree(id names.Lock) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.of[id]; q != nil {
		q.pollNow()
	}
}

// queueLocked returns the queue of a lock, a new one if there is none. mu is held.
func (qs *Queues) queueLocked(id names.Lock) *waitQueue {
	q := qs.of[id]
	if q == nil {
		q = &waitQueue{lease: MaxPoll}
		qs.of[id] = q
		qs.waitedKeys.Add(id.Key, 1)
	}
	return q
}

// leaveLocked takes w out of its queue. It reports whether waitsNoMore must follow: w was the last
// there, was not served, and others may go on waiting for it. mu is held.
func (qs *Queues) leaveLocked(w *Waiter) (missed bool) {
	q := qs.of[w.ID()]
	if q == nil {
		return false
	}
	q.leave(w)
	if q.len() > 0 {
		return false
	}
	delete(qs.of, w.ID())
	qs.waitedKeys.Add(w.Key, -1)
	return w.state != granted && (w.pollNow || q.listed)
}

// Has reports whether w has the lock.
func (qs *Queues) Has(w *Waiter) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.state == granted
}

// IsOffered reports whether a release is under way that may give w the lock.
func (qs *Queues) IsOffered(w *Waiter) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.state == offered
}

// Outcome reports whether w has the lock, or the value. It fails if w was rejected.
func (qs *Queues) Outcome(w *Waiter) (ended bool, err error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.state == granted || w.state == served, w.rejected
}

// Ended reports whether w has the lock, or the value.
func (qs *Queues) Ended(w *Waiter) bool {
	ended, _ := qs.Outcome(w)
	return ended
}

// TakeOwnerHolds reports whether w's owner seems to have the lock, and clears that: one check is
// enough.
func (qs *Queues) TakeOwnerHolds(w *Waiter) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	defer func() { w.ownerHolds = false }()
	return w.ownerHolds
}

// ShouldPoll reports whether w is first and must poll now.
func (qs *Queues) ShouldPoll(w *Waiter, timeToPoll bool) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.place != nil && qs.of[w.ID()].first() == w && (timeToPoll || w.pollNow)
}

// Position reports whether w is first, and then the lease that was last granted here.
func (qs *Queues) Position(w *Waiter) (first bool, lease time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of[w.ID()]
	if w.place == nil || q.first() != w {
		return false, 0
	}
	return true, q.lease
}

// WaitsAs is how this proxy waits for a lock: `how` in the lock record.
func (qs *Queues) WaitsAs(key string, foreignCompete bool) string {
	how := 32 * qs.ways.Steps(key)
	switch {
	case foreignCompete:
		how++
	case qs.unsubscribed.Load():
		how += 2
	}
	return strconv.FormatInt(how, 10)
}
