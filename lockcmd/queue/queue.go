package queue

import (
	"container/list"
	"time"

	"lockproxy/internal/names"
)

// waitQueue is the queue of one lock's waiters in this proxy, in order of arrival. It is pure: its
// callers hold Queues.mu, read the clock and do the I/O.
//
// Only the first waiter polls the lock; the others wait to become first. A release offers the lock
// to the first waiter, by name, in its script. Until the outcome is known, the waiter stays first
// and is offered no other lock. A release, and the first waiter's poll, offer a shared lock also to
// the waiters behind it that can share it.
type waitQueue struct {
	waiters list.List // of *Waiter
	alls    int       // how many of them are a LOCKALL's
	quota   int       // grants left before waiters of other proxies go first
	grants  int       // since the last gap
	lastGap time.Time // when a release last left the lock free although clients waited
	failing error     // why the last poll failed; nil if it did not
	// silentSince is when the first poll began that was not answered, of those since the last
	// answer
	silentSince time.Time
	lease       time.Duration // of the last grant here; MaxPoll before that

	listed     bool // the lock record can list this proxy
	heldShared bool // the last poll found the lock shared
	trusted    bool // the first waiter relies on Tracking since its last poll

	news time.Time // when the first waiter last polled because something may have happened

	claims    claims
	lastTouch time.Time // when a script may last have released the lock
}

func (q *waitQueue) first() *Waiter {
	if front := q.waiters.Front(); front != nil {
		return front.Value.(*Waiter)
	}
	return nil
}

func (q *waitQueue) len() int { return q.waiters.Len() }

// join adds w at the end. permitted reports whether a waiter of the same identity asks for the same
// kind of lock: so w may, too.
func (q *waitQueue) join(w *Waiter) (permitted bool) {
	if last := q.waiters.Back(); last != nil {
		permitted = last.Value.(*Waiter).asksAs(w) || q.first().asksAs(w)
	}
	w.line, w.place = q, q.waiters.PushBack(w)
	if w.IsAll {
		q.alls++
	}
	return permitted
}

// leave takes w out of the queue. If w was first, it wakes the next one. That one polls if w had a
// poll to do at once, kept it from sharing the lock with its holders, or waited for other locks
// while this one was free.
func (q *waitQueue) leave(w *Waiter) {
	if w.place == nil {
		return
	}
	wasFirst := q.first() == w
	q.waiters.Remove(w.place)
	w.place = nil
	if w.IsAll {
		q.alls--
	}
	if next := q.first(); wasFirst && next != nil {
		next.pollNow = next.pollNow ||
			w.state != granted && (w.pollNow || q.heldShared || w.IsAll)
		next.Signal()
	}
}

const (
	// maxSharers bounds the waiters that are offered a shared lock together with the first.
	maxSharers = 127
	// maxSharersTexts bounds the bytes of their owners' names and notes.
	maxSharersTexts = 16 << 10
)

// offerShared marks the waiters behind the first that can share the lock with it: all up to one
// that wants the lock for itself, has another identity, or is offered it already. That one goes on
// waiting, whatever the others are given.
func (q *waitQueue) offerShared(now time.Time) (list []*Waiter, behind *Waiter) {
	first, texts := q.first(), 0
	if !first.Shared {
		return nil, nil
	}
	for place := first.place.Next(); place != nil; place = place.Next() {
		w := place.Value.(*Waiter)
		texts += len(w.Owner) + len(w.Note)
		if !w.Shared || w.state != waiting || w.As != first.As || texts > maxSharersTexts ||
			len(list) == maxSharers {
			return list, w
		}
		w.offer()
		w.AskedAt = now
		list = append(list, w)
	}
	return list, nil
}

// endOffer ends an offer to w, which was given token, 0 for nothing. accepted is false if w has
// ended otherwise meanwhile: then the token must be released.
func (q *waitQueue) endOffer(w *Waiter, token int64) (accepted bool) {
	switch {
	case !w.ended() && token == 0:
		w.notOffered()
		w.Signal() // it may be waiting to leave
		return true
	case !w.ended():
		w.Handed = true
		q.grant(w, token)
		return true
	}
	return token == 0 || w.has(token)
}

// grant makes w the holder, which has not ended.
func (q *waitQueue) grant(w *Waiter, token int64) {
	w.end(granted)
	w.Token, q.failing = token, nil
	if q.quota <= 0 {
		q.quota = q.len()
	}
	q.quota--
	q.grants++
	q.listed = false
	q.claims = claims{}
	q.lease = w.Timeout
	q.leave(w)
	w.Signal()
}

// shared notes that waiters were given a shared lock. Those behind them are still listed in the
// lock record. The first polls, to learn when it can share the lock.
func (q *waitQueue) shared() {
	q.listed = true
	q.pollNow()
}

// answer gives the value of a key to all who have waited for it with a login since before it was
// asked for. The next one asks at once.
func (q *waitQueue) answer(as names.Identity, key string, value *string, asked time.Time) {
	var next *list.Element
	for place := q.waiters.Front(); place != nil; place = next {
		next = place.Next()
		if w := place.Value.(*Waiter); w.Once && w.As == as && w.Value == key &&
			w.Joined.Before(asked) && w.end(served) {
			w.found = value
			q.leave(w)
			w.Signal()
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
		first.Signal()
	}
}

// PollNow makes the first waiter poll: the lock may be free.
func (q *waitQueue) pollNow() {
	if first := q.first(); first != nil {
		first.pollNow = true
		first.Signal()
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
