package lockcmd

import (
	"container/list"
	"sync/atomic"
	"time"
)

// Identity is whom a connection's commands run as, and where.
type Identity struct {
	User     string // "" is the default user
	Password string // never logged
	LoggedIn bool
	DB       int
}

// lineKey names a lock within the upstream.
type lineKey struct {
	db  int
	key string
}

// line is the queue of one lock's waiters in this proxy, in order of arrival. It is pure: its
// caller holds the lock, reads the clock and does the I/O.
//
// Only the first waiter polls the lock; the others wait to become first. A release offers the lock
// to the first waiter, by name, within its script; until the outcome is known the waiter stays
// first and can't be offered another.
type line struct {
	waiters list.List     // of *waiter
	turn    int           // grants left before waiters of other proxies go first
	grants  int           // since the last gap
	gap     time.Time     // when a release last left the lock free although somebody waited
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
	request
	as        Identity
	state     waiterState
	token     int64
	takenOver bool
	renewed   bool      // its owner had the lock already
	before    bool      // its connection had been given the lock before
	joined    time.Time // the line
	until     time.Time // when its wait ends; zero is never
	asked     time.Time
	unsure    bool          // a release, or a poll of its own, has failed that may have given it the lock
	denied    error         // why it gets nothing, if it was given the lock and that is taken back
	wake      chan struct{} // holds one: something has changed, or the lock may be free
	poll      bool          // the lock may be free: poll at once
	polled    bool          // it has polled before
	asks      atomic.Int64  // since when a poll of its own is under way, as monotonic.Now; 0 if none is
	place     *list.Element
}

func newWaiter(r request, as Identity) *waiter {
	return &waiter{request: r, as: as, wake: make(chan struct{}, 1)}
}

// lock is what w was given, or with no token may have been.
func (w *waiter) lock(token int64) *heldLock {
	return &heldLock{request: w.request, as: w.as, token: token}
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
		w.token, w.takenOver, w.renewed, w.before, w.asked = a.token, a.takenOver, a.renewed, a.before, a.asked
	}
}

func (l *line) first() *waiter {
	if front := l.waiters.Front(); front != nil {
		return front.Value.(*waiter)
	}
	return nil
}

func (l *line) len() int { return l.waiters.Len() }

// join adds w at the end. knows reports whether another waiter has the same identity, and so has
// shown that it may lock here.
func (l *line) join(w *waiter) (knows bool) {
	if last := l.waiters.Back(); last != nil {
		knows = last.Value.(*waiter).as == w.as || l.first().as == w.as
	}
	w.place = l.waiters.PushBack(w)
	return knows
}

// leave takes w out of the line. The next one, if w was first, is told that it is first now, and to
// poll if w had been told to and has not.
func (l *line) leave(w *waiter) {
	if w.place == nil {
		return
	}
	wasFirst := l.first() == w
	l.waiters.Remove(w.place)
	w.place = nil
	if next := l.first(); wasFirst && next != nil {
		next.poll = next.poll || w.poll && w.state != granted
		next.signal()
	}
}

// wish is what a release tells its script about the waiters here.
type wish struct {
	kind string // as unlock.lua names it
	next *waiter
}

// offer says what a release by someone of identity as should do for the waiters here, and marks the
// one it names.
func (l *line) offer(as Identity, foreignCompete bool, now time.Time) wish {
	first := l.first()
	switch {
	case first == nil:
		return wish{kind: "none"}
	case foreignCompete:
		return wish{kind: "free"}
	case l.gapDue(now):
		return wish{kind: "gap"}
	case first.state != waiting || first.as != as:
		return wish{kind: "self"}
	}
	first.state, first.asked = offered, now
	if l.turn <= 0 {
		return wish{kind: "turn", next: first}
	}
	return wish{kind: "next", next: first}
}

// answered ends an offer: token is what the release gave to the waiter it named, 0 for nothing. It
// returns false if the waiter has left meanwhile, and the token must be released.
func (l *line) answered(w wish, token int64) (taken bool) {
	if w.next == nil {
		return true
	}
	switch w.next.state {
	case offered:
		w.next.state = waiting
		if token == 0 {
			w.next.signal() // it may have been kept from leaving
			return true
		}
		l.grant(w.next, token)
		return true
	case granted: // it has found this grant by itself, or taken the lock before and been forced out by this release
		return token == 0 || token == w.next.token
	}
	return token == 0
}

// grant makes w the holder.
func (l *line) grant(w *waiter, token int64) {
	w.state, w.token, l.failing = granted, token, nil
	if l.turn <= 0 {
		l.turn = l.len()
	}
	l.turn--
	l.grants++
	l.lease = w.timeout
	l.leave(w)
	w.signal()
}

// yielded says that others go first. If they don't, the first here polls after so long.
func (l *line) yielded(wait time.Duration) {
	l.turn, l.lease = 0, wait
	l.wakeFirst()
}

// wakeFirst lets the first waiter think again about when to poll.
func (l *line) wakeFirst() {
	if first := l.first(); first != nil {
		first.signal()
	}
}

// pollNow tells the first waiter that the lock may be free.
func (l *line) pollNow() {
	if first := l.first(); first != nil {
		first.poll = true
		first.signal()
	}
}
