package lockcmd

import (
	"container/list"
	"sync/atomic"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/script"
)

// waitQueue is the queue of one lock's waiters in this proxy, in order of arrival. It is pure: its
// callers hold queues.mu, read the clock and do the I/O.
//
// Only the first waiter polls the lock; the others wait to become first. A release offers the lock
// to the first waiter, by name, in its script. Until the outcome is known, the waiter stays first
// and is offered no other lock. A release, and the first waiter's poll, offer a shared lock also to
// the waiters behind it that can share it.
type waitQueue struct {
	waiters list.List     // of *waiter
	quota   int           // grants left before waiters of other proxies go first
	grants  int           // since the last gap
	lastGap time.Time     // when a release last left the lock free although clients waited
	failing error         // why the last poll failed; nil if it did not
	lease   time.Duration // of the last grant here; maxPoll before that

	listed     bool // the lock record can list this proxy
	heldShared bool // the last poll found the lock shared
	trusted    bool // the first waiter relies on keyTracking since its last poll

	lastTouch time.Time // when a script may last have released the lock
}

type waiterState uint8

const (
	waiting waiterState = iota
	offered             // a release's script is under way that may name this waiter
	granted             // token is valid
	served              // it waited for a value (ONCE), and has it
	left                // its client has gone, its time is over, or it has its answer
)

// waiter is one LOCK … WAIT.
type waiter struct {
	script.Request
	as             names.Identity
	state          waiterState
	script.Attempt // how it got the lock: the token is valid once it is granted
	joined         time.Time
	until          time.Time     // when its wait ends; zero is never
	unknownOutcome bool          // a release or poll has failed that may have given it the lock
	rejected       error         // why it must not keep the lock that it was given
	wake           chan struct{} // holds one: something has changed, or the lock may be free
	found          *string       // the value that it waited for, once it is answered
	pollNow        bool          // the lock may be free: poll at once
	polled         bool          // it has polled before
	ownerHolds     bool          // its owner seems to have the lock: check, even behind others
	placed         bool          // of a LOCKALL: the upstream knows that it is first
	pollStarted    atomic.Int64  // when the poll under way began, as monotonic.Now; 0 if none is
	place          *list.Element // nil outside the queue
	all            *allWaiter    // of a LOCKALL: the waiters of all its locks
	watched        *watchedWait  // the wait in deadlocks; of a LOCKALL only its lead has it
}

func newWaiter(r script.Request, as names.Identity) *waiter {
	return &waiter{Request: r, as: as, wake: make(chan struct{}, 1)}
}

func (w *waiter) id() names.Lock { return names.Lock{DB: w.as.DB, Key: w.Key} }

// lock is the lock that w was given, or with token 0 may have been given.
func (w *waiter) lock(token int64) *held.Lock {
	return &held.Lock{Request: w.Request, As: w.as, Token: token}
}

func (w *waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// supersede notes that a poll has taken the lock for w although a release had given it the lock:
// the poll ran after the end of that lease, or before it. w has the higher token. With the other
// one, its client could not release the lock.
func (w *waiter) supersede(a script.Attempt) {
	if a.Token > w.Token {
		w.Attempt = a
	}
}

func (q *waitQueue) first() *waiter {
	if front := q.waiters.Front(); front != nil {
		return front.Value.(*waiter)
	}
	return nil
}

func (q *waitQueue) len() int { return q.waiters.Len() }

// join adds w at the end. permitted reports whether a waiter of the same identity asks for the same
// kind of lock: so w may, too.
func (q *waitQueue) join(w *waiter) (permitted bool) {
	if last := q.waiters.Back(); last != nil {
		permitted = last.Value.(*waiter).asksAs(w) || q.first().asksAs(w)
	}
	w.place = q.waiters.PushBack(w)
	return permitted
}

// asksAs reports whether two waiters need the same rights.
func (w *waiter) asksAs(other *waiter) bool { return w.as == other.as && w.Shared == other.Shared }

// leave takes w out of the queue. If w was first, it wakes the next one. That one polls if w had a
// poll to do at once, kept it from sharing the lock with its holders, or waited for other locks
// while this one was free.
func (q *waitQueue) leave(w *waiter) {
	if w.place == nil {
		return
	}
	wasFirst := q.first() == w
	q.waiters.Remove(w.place)
	w.place = nil
	if next := q.first(); wasFirst && next != nil {
		next.pollNow = next.pollNow ||
			w.state != granted && (w.pollNow || q.heldShared || w.all != nil)
		next.signal()
	}
}

// handOver is what a release tells unlock.lua about the waiters here.
type handOver struct {
	kind   string // A[5] of unlock.lua
	next   *waiter
	others []*waiter // behind next, that can share the lock with it
}

// named are the waiters that the lock is offered to, in order.
func (h handOver) named() []*waiter {
	if h.next == nil {
		return nil
	}
	return append([]*waiter{h.next}, h.others...)
}

// offer decides what a release by an identity does for the waiters here, and marks those that it
// names.
func (q *waitQueue) offer(as names.Identity, foreignCompete bool, now time.Time) handOver {
	first := q.first()
	switch {
	case first == nil:
		return handOver{kind: "none"}
	case foreignCompete:
		return handOver{kind: "free"}
	case q.foreignGapDue(now):
		return handOver{kind: "gap"}
	case first.all != nil:
		return handOver{kind: "all"}
	case first.state != waiting || first.as != as:
		return handOver{kind: "self"}
	}
	first.state, first.AskedAt = offered, now
	offer := handOver{kind: "next", next: first, others: q.offerShared(now)}
	if q.quota <= 0 {
		offer.kind = "fair"
	}
	return offer
}

const (
	// maxSharers bounds the waiters that are offered a shared lock together with the first.
	maxSharers = 127
	// maxSharersOwners bounds the bytes of their owners' names.
	maxSharersOwners = 16 << 10
)

// offerShared marks the waiters behind the first that can share the lock with it: all up to one
// that wants the lock for itself, has another identity, or is offered it already.
func (q *waitQueue) offerShared(now time.Time) (list []*waiter) {
	first, owners := q.first(), 0
	if !first.Shared {
		return nil
	}
	for place := first.place.Next(); place != nil && len(list) < maxSharers; place = place.Next() {
		w := place.Value.(*waiter)
		owners += len(w.Owner)
		if !w.Shared || w.state != waiting || w.as != first.as || owners > maxSharersOwners {
			break
		}
		w.state, w.AskedAt = offered, now
		list = append(list, w)
	}
	return list
}

// endOffer ends an offer to w, which was given token, 0 for nothing. accepted is false if w has
// left meanwhile: then the token must be released.
func (q *waitQueue) endOffer(w *waiter, token int64) (accepted bool) {
	switch w.state {
	case offered:
		w.state = waiting
		if token == 0 {
			w.signal() // it may be waiting to leave
			return true
		}
		q.grant(w, token)
		return true
	case granted: // its poll has found this grant, or took the lock that this release forced
		return token == 0 || token == w.Token
	}
	return token == 0
}

// grant makes w the holder.
func (q *waitQueue) grant(w *waiter, token int64) {
	w.state, w.Token, q.failing = granted, token, nil
	if q.quota <= 0 {
		q.quota = q.len()
	}
	q.quota--
	q.grants++
	q.listed = false
	q.lease = w.Timeout
	q.leave(w)
	w.signal()
}

// answer gives w the value that it waited for.
func (w *waiter) answer(value *string) { w.state, w.found = served, value }

// answer gives the value of a key to all who have waited for it with a login since before it was
// asked for. The next one asks at once.
func (q *waitQueue) answer(as names.Identity, key string, value *string, asked time.Time) {
	var next *list.Element
	for place := q.waiters.Front(); place != nil; place = next {
		next = place.Next()
		if w := place.Value.(*waiter); w.as == as && w.Value == key &&
			w.joined.Before(asked) {
			w.answer(value)
			q.leave(w)
			w.signal()
		}
	}
	q.failing = nil
	q.pollNow()
}

// yield lets others go first. The first here polls after wait. The release has listed this proxy.
func (q *waitQueue) yield(wait time.Duration) {
	q.quota, q.lease, q.listed = 0, wait, true
	q.wakeFirst()
}

// wakeFirst makes the first waiter decide again when to poll.
func (q *waitQueue) wakeFirst() {
	if first := q.first(); first != nil {
		first.signal()
	}
}

// pollNow makes the first waiter poll: the lock may be free.
func (q *waitQueue) pollNow() {
	if first := q.first(); first != nil {
		first.pollNow = true
		first.signal()
	}
}

// maxTouches is the least time between polls because a script may have released the lock.
const maxTouches = 5 * time.Millisecond

// touched reports whether the first waiter must poll because of such a script.
func (q *waitQueue) touched(now time.Time) bool {
	if now.Sub(q.lastTouch) < maxTouches {
		return false
	}
	q.lastTouch = now
	return true
}

// After foreignGapGrants and foreignGapEvery there is a gap: a release leaves the key free for
// foreign clients.
const (
	foreignGapGrants = 64
	foreignGapEvery  = time.Second
)

// foreignGapDue reports whether this release must leave a gap, and then begins to count again.
func (q *waitQueue) foreignGapDue(now time.Time) bool {
	if q.grants < foreignGapGrants || now.Sub(q.lastGap) < foreignGapEvery {
		return false
	}
	q.grants, q.lastGap = 0, now
	return true
}

// reject takes back an offer to w because of err. The caller undoes it and then signals w. found
// says that a poll has given w the lock meanwhile: then w keeps it.
func (w *waiter) reject(err error) (found bool) {
	if w.state == granted {
		return true
	}
	if w.state == offered {
		w.state, w.rejected = left, err
	}
	return false
}
