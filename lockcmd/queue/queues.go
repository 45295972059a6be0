package queue

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// Queues are the clients that wait here, and those that compete with them, by the lock.
type Queues struct {
	waiters atomic.Int64          // for any lock, and those that watch one
	Keys    names.Filter          // of the locks in use, and all others that matter to the proxy
	hears   func(key string) bool // see Hears
	ways    distance

	mu     sync.Mutex
	of     map[names.Lock]*entry // guarded by mu; of locks in use, and of those in left
	byHash map[names.Hash]*entry // guarded by mu; the same
	left   list.List             // guarded by mu; of *entry, in the order in which they were left
	lines  int                   // guarded by mu; locks that clients wait for
	// unknown stands for all locks without an entry. guarded by mu
	unknown entry
	waits   list.List        // guarded by mu; of *Wait, in order of arrival
	alls    list.List        // guarded by mu; of *Wait, LOCKALLs, in order of arrival
	began   time.Time        // guarded by mu; when the first of all joined
	joined  time.Duration    // guarded by mu; the sum of when waits joined, since began
	asking  map[string]*Wait // guarded by mu; by the connection
}

// distance is how far the upstream of a lock is. steps is how the lock record tells it.
type distance interface {
	RoundTrip(key string) time.Duration
	Steps(key string) int64
}

func New(ways distance) *Queues {
	return &Queues{
		ways: ways, hears: func(string) bool { return false },
		of: map[names.Lock]*entry{}, byHash: map[names.Hash]*entry{}, asking: map[string]*Wait{},
	}
}

// Queue is that of one lock, also if nobody waits for it.
type Queue struct {
	all *Queues
	id  names.Lock
}

// Of returns the queue of a lock.
func (qs *Queues) Of(id names.Lock) Queue { return Queue{qs, id} }

// Waiting reports whether any client waits for a lock, or watches one.
func (qs *Queues) Waiting() bool { return qs.waiters.Load() > 0 }

// HasWaiters reports whether clients wait for the lock.
func (q Queue) HasWaiters() bool {
	if !q.all.Waiting() {
		return false
	}
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	return q.all.lineOf(q.id) != nil
}

// Hears has hears say whether release notifications about a lock can come. None can while no
// connection is subscribed for it: at first, and after a failure. A release takes a proxy that
// should hear of it and does not for ended. Nobody may wait yet.
func (qs *Queues) Hears(hears func(key string) bool) { qs.hears = hears }

// WaitsAs is how this proxy waits for a lock. tracks says that it polls seldom.
func (qs *Queues) WaitsAs(key string, foreignCompete, tracks bool) script.How {
	return script.NewHow(foreignCompete, !qs.hears(key), tracks, qs.ways.Steps(key))
}

// arrival is how a waiter has come into the queue of its lock.
type arrival struct {
	First       bool
	Permitted   bool // another has been permitted the same: see waitQueue.join
	ForeignTurn bool // the lock has just been left free for foreign clients
}

// Join puts a LOCK at the end of the queue of its lock. It waits for patience; 0 is forever. End
// must follow.
func (qs *Queues) Join(
	r script.Request, as names.Identity, patience time.Duration, now time.Time,
) (w *Waiter, at arrival) {
	w = newWait(as, r).Lead
	return w, qs.join(w.Wait, patience, now)
}

// JoinAll is Join for a LOCKALL, which has a Waiter in each queue.
func (qs *Queues) JoinAll(
	rs []script.Request, as names.Identity, patience time.Duration, now time.Time,
) *Wait {
	w := newWait(as, rs...)
	w.IsAll = true
	qs.join(w, patience, now)
	return w
}

// join puts w into its queues, and says how it has come into the last of them.
func (qs *Queues) join(w *Wait, patience time.Duration, now time.Time) (at arrival) {
	qs.waiters.Add(1)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w.queues, w.Joined = qs, now
	if patience > 0 {
		w.until = now.Add(patience)
	}
	if qs.began.IsZero() {
		qs.began = now
	}
	qs.joined += now.Sub(qs.began)
	w.arrived = qs.waits.PushBack(w)
	qs.asking[w.Lead.Connection] = w
	for _, one := range w.Waiters {
		e := qs.entryLocked(one.ID())
		if e.line == nil {
			e.line = &waitQueue{lease: MaxPoll}
			qs.lines++
			qs.usedLocked(e)
		}
		at = arrival{Permitted: e.line.join(one), First: e.line.first() == one,
			ForeignTurn: e.foreign.haveTurn(now)}
	}
	if w.IsAll {
		w.turn = qs.alls.PushBack(w)
	}
	return at
}

const (
	// maxLeft bounds the locks that are remembered although nobody here uses them, the last ones:
	// a reservation of another lock ends by itself, and foreign clients will be seen again.
	maxLeft = 10000
	// maxLeftName bounds the names of these locks, bytes.
	maxLeftName = 1024
)

// entryLocked returns the entry of a lock, a new one if there is none. usedLocked must follow. mu
// is held.
func (qs *Queues) entryLocked(id names.Lock) *entry {
	e := qs.of[id]
	if e == nil {
		e = &entry{id: id, hash: id.Hash()}
		qs.of[id], qs.byHash[e.hash] = e, e
		qs.Keys.Add(id.Key, 1)
	}
	return e
}

// usedLocked notes that somebody uses the lock, or nobody does any more. mu is held.
func (qs *Queues) usedLocked(e *entry) {
	if e.leftAt != nil {
		qs.left.Remove(e.leftAt)
		e.leftAt = nil
		qs.Keys.Add(e.id.Key, 1)
	}
	if e.line != nil || len(e.watching)+len(e.delayed) > 0 {
		return
	}
	qs.Keys.Add(e.id.Key, -1)
	if e.leftAt = qs.left.PushBack(e); len(e.id.Key) > maxLeftName {
		qs.forgetLocked(e)
	} else if qs.left.Len() > maxLeft {
		qs.forgetLocked(qs.left.Front().Value.(*entry))
	}
}

// forgetLocked forgets a lock that nobody uses. mu is held.
func (qs *Queues) forgetLocked(e *entry) {
	qs.left.Remove(e.leftAt)
	delete(qs.of, e.id)
	if qs.byHash[e.hash] == e { // otherwise another lock has the same hash
		delete(qs.byHash, e.hash)
	}
}

// lineOf returns the line of a lock, nil if nobody waits. mu is held.
func (qs *Queues) lineOf(id names.Lock) *waitQueue { return qs.known(id).line }

// known returns the entry of a lock, or one in which nothing is known. mu is held.
func (qs *Queues) known(id names.Lock) *entry {
	if e := qs.of[id]; e != nil {
		return e
	}
	return &qs.unknown
}

// sawLocked notes that a foreign client competes for a lock. mu is held.
func (qs *Queues) sawLocked(id names.Lock, now time.Time) *foreignSight {
	e := qs.entryLocked(id)
	qs.usedLocked(e)
	if !e.foreign.compete(now) {
		e.foreign = foreignSight{}
	}
	e.foreign.seen = now
	return &e.foreign
}

// Departure is how a wait has ended.
type Departure struct {
	Won     bool    // it has its locks
	Found   *string // it has this value instead
	Unknown bool    // it may have been given its locks without knowing
	// Missed are its waiters that were the last, and for which others may go on waiting.
	Missed []Departed
	Err    error
}

// Departed is a waiter that has left. PollNow says that the lock may be reserved for this proxy.
type Departed struct {
	*Waiter
	PollNow bool
}

// End takes w out of the queues. err is why it has failed, if that is known already. If others had
// ended w before that, they have told so: its client hears why, unless something must follow err.
func (w *Wait) End(err error) (d Departure) {
	qs := w.queues
	defer qs.waiters.Add(-1)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w.end(left)
	w.told = true
	d = Departure{Won: w.state == granted, Found: w.found, Unknown: w.unknown, Err: err}
	if err == nil || w.rejected != nil && !failure.MayHaveRun(err) {
		d.Err = w.rejected
	}
	delete(qs.asking, w.Lead.Connection)
	qs.waits.Remove(w.arrived)
	qs.joined -= w.Joined.Sub(qs.began)
	if w.IsAll {
		qs.alls.Remove(w.turn)
	}
	for _, one := range w.Waiters {
		if qs.leaveLocked(one) {
			d.Missed = append(d.Missed, Departed{one, one.pollNow})
		}
	}
	return d
}

// leaveLocked takes w out of its queue. It reports whether waitsNoMore must follow: w was the last
// there, was not served, and others may go on waiting for it. mu is held.
func (qs *Queues) leaveLocked(w *Waiter) (missed bool) {
	e, q := qs.known(w.ID()), w.line
	if q.leave(w); q.len() > 0 || e.line != q {
		return false
	}
	as := w.As
	missed = w.state != granted && (w.pollNow || q.listed)
	*q, e.line, e.leftAs = waitQueue{}, nil, &as // others that were in it can still ask it
	qs.lines--
	qs.usedLocked(e)
	return missed
}

// GiveUp notes that w does not want the lock that it has been handed.
func (w *Waiter) GiveUp() {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.endAgain(left)
}

// State is how a waiter stands.
type State struct {
	Waits   bool          // no release that names it is under way, and it has no outcome yet
	Offered bool          // a release is under way that may give it the lock
	Has     bool          // it has the lock
	Ended   bool          // it has the lock, or the value
	Err     error         // why it was refused
	First   bool          // in its queue
	PollNow bool          // it is first, and the lock may be free
	Checks  bool          // its owner seems to have the lock: see TakeOwnerHolds
	Lease   time.Duration // that was last granted here, if it is first
}

// State says how w stands now.
func (w *Waiter) State() State {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	s := State{
		Waits: w.state == waiting, Offered: w.state == offered,
		Has: w.state == granted, Ended: w.state == granted || w.state == served, Err: w.rejected,
		Checks: w.ownerHolds,
	}
	if w.isFirst() {
		s.First, s.PollNow, s.Lease = true, w.pollNow, w.line.lease
	}
	return s
}
