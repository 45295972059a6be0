package queue

import (
	"slices"

	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/failure"
)

// WaitsFor is the key of the lock that a client waits for, of a LOCKALL's the first.
func (qs *Queues) WaitsFor(connection string) (key string, waits bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w := qs.asking[connection]; w != nil {
		return w.Lead.Key, true
	}
	return "", false
}

// Unblock ends the wait of a client's LOCK, LOCKALL or LOCKINFO. It reports whether the client still
// waited. If the lock is on its way, it is released.
func (qs *Queues) Unblock(connection string, withError bool) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w := qs.asking[connection]
	if w == nil || !w.refuse(failure.UnblockedError(withError)) {
		return false
	}
	w.Signal()
	return true
}

// Refuse ends w with an error, and reports whether it still waited.
func (w *Wait) Refuse(err error) bool {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if w.state != waiting || !w.refuse(err) {
		return false
	}
	w.Signal()
	return true
}

// refuseAll ends the waits of q with an error.
func (q *waitQueue) refuseAll(err error) {
	for e := q.waiters.Front(); e != nil; e = e.Next() {
		if w := e.Value.(*Waiter); w.refuse(err) {
			w.Signal()
		}
	}
}

// OwnerMayHold makes w check whether its owner has the lock.
func (w *Wait) OwnerMayHold() {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.ownerHolds = true
	w.Signal()
}

// TakeOwnerHolds reports whether w's owner seems to have the lock, and clears that: one check is
// enough.
func (w *Wait) TakeOwnerHolds() bool {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	defer func() { w.ownerHolds = false }()
	return w.ownerHolds
}

// At returns the waits for the lock under a name, one at most: see Waiter.calledAs. That without a
// name is the first.
func (q Queue) At(as string) []*Wait {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	line := q.all.lineOf(q.id)
	if line == nil {
		return nil
	}
	for e := line.waiters.Front(); e != nil; e = e.Next() {
		w := e.Value.(*Waiter)
		if as == "" || slices.Contains(w.calledAs(w == line.first()), as) {
			return []*Wait{w.Wait}
		}
	}
	return nil
}

// Standings are how w's waiters stand in their queues. ok is false if it no longer waits.
func (w *Wait) Standings() (list []deadlock.KeyWait, ok bool) {
	qs := w.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.ended() {
		return nil, false
	}
	for _, one := range w.Waiters {
		q := one.line
		first := q.first()
		k := deadlock.KeyWait{Key: deadlock.Binary(one.Key), As: one.calledAs(one == first),
			Shared: one.Shared, AllSince: first.since, Enough: one.enough()}
		if q.alls > 0 {
			k.Behind = one.behind()
		}
		list = append(list, k)
	}
	return list, true
}
