package queue

import (
	"container/list"
	"math"
	"sync/atomic"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// Wait is one LOCK … WAIT, or one LOCKALL … WAIT. What changes in it and in a Waiter is guarded by
// Queues.mu.
type Wait struct {
	queues      *Queues
	Waiters     []*Waiter // for each of its locks
	Lead        *Waiter   // the first of them, which stands for all
	As          names.Identity
	Joined      time.Time
	until       time.Time // when it ends; zero is never
	isPlace     bool      // its client does not wait: see Keep
	onWake      atomic.Pointer[func()]
	woken       atomic.Bool   // something has changed, or a lock may be free, since TakeWoken
	state       waitState     // changed by becomes alone
	told        bool          // its client is told how it has ended
	mayRunUntil time.Time     // when the last script that was asked for it can run at the latest
	rejected    error         // why it has left, if others have ended it
	found       *string       // the value that it waited for, once it is served
	unknown     bool          // a release or poll has failed that may have given it its locks
	ownerHolds  bool          // its owner seems to have the lock: check, even behind others
	unanswered  int           // polls, since the last answer
	pollStarted time.Time     // when the poll under way began; zero if none is
	arrived     *list.Element // among Queues.waits

	IsAll bool // it is a LOCKALL

	// Of a LOCKALL:
	since int64         // when the upstream first heard of it, ms; 0 is never
	turn  *list.Element // among Queues.alls
}

// WakeBy has wake called when something changes for w for the first time after TakeWoken. It must not
// block: the mutex of the Queues can be held.
func (w *Wait) WakeBy(wake func()) { w.onWake.Store(&wake) }

// TakeWoken reports whether something has changed for w since the last call.
func (w *Wait) TakeWoken() bool { return w.woken.Swap(false) }

func (w *Wait) Signal() {
	if wake := w.onWake.Load(); !w.woken.Swap(true) && wake != nil {
		(*wake)()
	}
}

// RequestID is the request's name, unique among all proxies.
func (w *Wait) RequestID() string { return w.Lead.Connection + "/" + w.Lead.Number }

// waitState is how a Wait stands. The last three are its ends.
type waitState uint8

const (
	waiting waitState = iota
	offered           // a script is under way that may give it the lock
	granted           // the tokens are valid
	served            // it waited for a value (ONCE), and has it
	left              // it was refused, its client is disconnected, or its time has expired
)

// ended reports whether the outcome of w is known. What is answered for it later changes nothing:
// a lock that comes with it is released.
func (w *Wait) ended() bool { return w.state >= granted }

func (w *Wait) becomes(state waitState) { w.state = state }

// offer notes that a script may give w the lock, which waits for one. notOffered ends that.
func (w *Wait) offer() { w.becomes(offered) }

func (w *Wait) notOffered() {
	if w.state == offered {
		w.becomes(waiting)
	}
}

// end ends w, unless it has ended. Then it reports false, and its callers must take back what they
// had for w.
func (w *Wait) end(as waitState) (ended bool) {
	if w.ended() {
		return false
	}
	w.becomes(as)
	return true
}

// endAgain ends w, also if it was granted its locks. Only w's own command may do that, which has
// told its client nothing yet.
func (w *Wait) endAgain(as waitState) (ended bool) {
	if w.state == granted {
		w.becomes(as)
		return true
	}
	return w.end(as)
}

// refuse ends w with an error, unless it has ended.
func (w *Wait) refuse(err error) (ended bool) {
	if !w.end(left) {
		return false
	}
	w.rejected = err
	return true
}

// MayRunUntil is when the last script that was asked for w can run at the latest.
func (w *Wait) MayRunUntil() time.Time {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.mayRunUntil
}

// Waiter is the place of a Wait in the queue of one lock.
type Waiter struct {
	script.Request
	*Wait
	script.Attempt               // how it got the lock: the token is valid once it is granted
	Handed         bool          // a release gave it the lock; for its own command, at its end
	Polled         bool          // it has polled before; for its own command
	pollNow        bool          // the lock may be free: poll at once
	placed         bool          // of a LOCKALL: the upstream knows that it is first
	line           *waitQueue    // that it has joined
	place          *list.Element // nil outside the queue
}

func newWait(as names.Identity, rs ...script.Request) *Wait {
	w := &Wait{As: as}
	for _, r := range rs {
		w.Waiters = append(w.Waiters, &Waiter{Request: r, Wait: w})
	}
	w.Lead = w.Waiters[0]
	return w
}

func (w *Waiter) ID() names.Lock { return names.Lock{DB: w.As.DB, Key: w.Key} }

// isFirst reports whether w is the first waiter for its lock.
func (w *Waiter) isFirst() bool { return w.place != nil && w.place.Prev() == nil }

// asksAs reports whether two waiters need the same rights.
func (w *Waiter) asksAs(other *Waiter) bool { return w.As == other.As && w.Shared == other.Shared }

// NotUndone notes that what w was rejected for could not be undone, and returns the error for w's
// client, nil if w was not rejected.
func (w *Waiter) NotUndone() error {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if w.rejected != nil {
		w.rejected = failure.NotUndone(w.rejected)
	}
	return w.rejected
}

// calledAs returns w's names in places. Queues.mu is held.
func (w *Waiter) calledAs(first bool) (as []string) {
	if w.IsAll {
		as = append(as, w.RequestID())
	}
	if !first {
		return as
	}
	switch {
	case !w.Shared:
		as = append(as, deadlock.AsExclusive)
	case w.Limit > 0:
		as = append(as, deadlock.AsLimit)
	}
	if w.IsAll && w.since != 0 {
		as = append(as, deadlock.AsListed(w.since))
	}
	return as
}

// behind is the request of the last LOCKALL before w in its queue, "" if there is none. Another of
// its locks can hold it up. Queues.mu is held.
func (w *Waiter) behind() string {
	for place := w.place.Prev(); place != nil; place = place.Prev() {
		if before := place.Value.(*Waiter); before.IsAll {
			return before.RequestID()
		}
	}
	return ""
}

// enough returns how many holders of a shared lock keep w waiting: one if w or a waiter before it
// is exclusive, otherwise their lowest limit. Queues.mu is held.
func (w *Waiter) enough() int {
	least := math.MaxInt
	for place := w.place; place != nil; place = place.Prev() {
		v := place.Value.(*Waiter)
		if !v.Shared {
			return 1
		}
		if v.Limit > 0 && v.Limit < int64(least) {
			least = int(v.Limit)
		}
	}
	return least
}

// has reports whether w was granted the lock with this token.
func (w *Waiter) has(token int64) bool { return w.state == granted && w.Token == token }
