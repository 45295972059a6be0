package lockcmd

import (
	"container/list"
	"sync/atomic"
	"time"
)

// waitQueue is the queue of one lock's waiters in this proxy, in order of arrival. It is pure: its
// caller holds the lock, reads the clock and does the I/O.
//
// Only the first waiter polls the lock; the others wait to become first. A release offers the lock
// to the first waiter, by name, within its script; until the outcome is known the waiter stays
// first and can't be offered another.
type waitQueue struct {
	waiters list.List     // of *waiter
	quota   int           // grants left before waiters of other proxies go first
	grants  int           // since the last gap
	lastGap time.Time     // when a release last left the lock free although somebody waited
	failing error         // why the last poll has found out nothing; nil if it has
	lease   time.Duration // the timeout of the last one granted here; maxPoll before
}

type waiterState uint8

const (
	waiting waiterState = iota
	offered             // a release's script is under way that may name this waiter
	granted             // token is valid
	left                // its client is gone, or its time is over, or it has its answer
)

// waiter is one LOCK … WAIT.
type waiter struct {
	lockRequest
	as             Identity
	state          waiterState
	token          int64
	takenOver      bool
	renewed        bool      // its owner had the lock already
	before         bool      // its connection had been given the lock before
	joined         time.Time // the line
	until          time.Time // when its wait ends; zero is never
	askedAt        time.Time
	unknownOutcome bool          // a release, or a poll of its own, has failed that may have given it the lock
	rejected       error         // why it gets nothing, if it was given the lock and that is taken back
	wake           chan struct{} // holds one: something has changed, or the lock may be free
	pollNow        bool          // the lock may be free: poll at once
	polled         bool          // it has polled before
	pollStarted    atomic.Int64  // since when a poll of its own is under way, as monotonic.Now; 0 if none is
	place          *list.Element
}

func newWaiter(r lockRequest, as Identity) *waiter {
	return &waiter{lockRequest: r, as: as, wake: make(chan struct{}, 1)}
}

// lock is what w was given, or with no token may have been.
func (w *waiter) lock(token int64) *heldLock {
	return &heldLock{lockRequest: w.lockRequest, as: w.as, token: token}
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// supersede notes that w, which a release had given the lock, has taken it again by a poll that
// came so late that the first lease had ended. It holds the one with the higher token. If w were
// told the other, nobody could release the lock.
func (w *waiter) supersede(a attempt) {
	if a.token > w.token {
		w.token, w.takenOver, w.renewed, w.before, w.askedAt = a.token, a.takenOver, a.renewed, a.before, a.askedAt
	}
}

func (q *waitQueue) first() *waiter {
	if front := q.waiters.Front(); front != nil {
		return front.Value.(*waiter)
	}
	return nil
}

func (q *waitQueue) len() int { return q.waiters.Len() }

// join adds w at the end. knows reports whether another waiter has the same identity, and so has
// shown that it may lock here.
func (q *waitQueue) join(w *waiter) (knows bool) {
	if last := q.waiters.Back(); last != nil {
		knows = last.Value.(*waiter).as == w.as || q.first().as == w.as
	}
	w.place = q.waiters.PushBack(w)
	return knows
}

// leave takes w out of the line. The next one, if w was first, is told that it is first now, and to
// poll if w had been told to and has not.
func (q *waitQueue) leave(w *waiter) {
	if w.place == nil {
		return
	}
	wasFirst := q.first() == w
	q.waiters.Remove(w.place)
	w.place = nil
	if next := q.first(); wasFirst && next != nil {
		next.pollNow = next.pollNow || w.pollNow && w.state != granted
		next.signal()
	}
}

// handOver is what a release tells its script about the waiters here.
type handOver struct {
	kind string // as unlock.lua names it
	next *waiter
}

// offer says what a release by someone of identity as should do for the waiters here, and marks the
// one it names.
func (q *waitQueue) offer(as Identity, foreignCompete bool, now time.Time) handOver {
	first := q.first()
	switch {
	case first == nil:
		return handOver{kind: "none"}
	case foreignCompete:
		return handOver{kind: "free"}
	case q.foreignGapDue(now):
		return handOver{kind: "gap"}
	case first.state != waiting || first.as != as:
		return handOver{kind: "self"}
	}
	first.state, first.askedAt = offered, now
	if q.quota <= 0 {
		return handOver{kind: "fair", next: first}
	}
	return handOver{kind: "next", next: first}
}

// endHandOver ends an offer: token is what the release gave to the waiter it named, 0 for nothing. It
// returns false if the waiter has left meanwhile, and the token must be released.
func (q *waitQueue) endHandOver(offer handOver, token int64) (taken bool) {
	if offer.next == nil {
		return true
	}
	switch offer.next.state {
	case offered:
		offer.next.state = waiting
		if token == 0 {
			offer.next.signal() // it may have been kept from leaving
			return true
		}
		q.grant(offer.next, token)
		return true
	case granted: // it has found this grant by itself, or taken the lock before and been forced out by this release
		return token == 0 || token == offer.next.token
	}
	return token == 0
}

// grant makes w the holder.
func (q *waitQueue) grant(w *waiter, token int64) {
	w.state, w.token, q.failing = granted, token, nil
	if q.quota <= 0 {
		q.quota = q.len()
	}
	q.quota--
	q.grants++
	q.lease = w.timeout
	q.leave(w)
	w.signal()
}

// yield says that others go first. If they don't, the first here polls after so long.
func (q *waitQueue) yield(wait time.Duration) {
	q.quota, q.lease = 0, wait
	q.wakeFirst()
}

// wakeFirst lets the first waiter think again about when to poll.
func (q *waitQueue) wakeFirst() {
	if first := q.first(); first != nil {
		first.signal()
	}
}

// pollNow tells the first waiter that the lock may be free.
func (q *waitQueue) pollNow() {
	if first := q.first(); first != nil {
		first.pollNow = true
		first.signal()
	}
}

// A release leaves the key free for foreign clients after so many grants, and so long.
const (
	foreignGapGrants = 64
	foreignGapEvery  = time.Second
)

// foreignGapDue reports whether the next release is to leave the key free. That counts as done.
func (q *waitQueue) foreignGapDue(now time.Time) bool {
	if q.grants < foreignGapGrants || now.Sub(q.lastGap) < foreignGapEvery {
		return false
	}
	q.grants, q.lastGap = 0, now
	return true
}

// reject ends an offer whose lock too few replicas know of. What it must undo first is up to its
// caller, who tells the waiter by signal afterwards. found says that the waiter has found the lock
// by itself meanwhile, with enough replicas: then it keeps it.
func (q *waitQueue) reject(offer handOver, err error) (found bool) {
	if offer.next.state == granted {
		return true
	}
	if offer.next.state == offered {
		offer.next.state, offer.next.rejected = left, err
	}
	return false
}
