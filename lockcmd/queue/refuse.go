package queue

import (
	"slices"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/failure"
)

// Waits reports whether a client waits for a lock.
func (qs *Queues) Waits(connection string) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.asking[connection] != nil
}

// Unblock ends the wait of a client's LOCK or LOCKALL. It reports whether the client still waited.
// If the lock is on its way, it is released.
func (qs *Queues) Unblock(connection string, withError bool) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w := qs.asking[connection]
	if w == nil || w.rejected != nil || w.state != waiting && w.state != offered {
		return false
	}
	w.state, w.rejected = left, failure.UnblockedError(withError)
	w.Signal()
	return true
}

// Refuse ends the wait of w with an error, and reports whether it still waited.
func (qs *Queues) Refuse(w *Waiter, err error) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if w.state != waiting || w.rejected != nil {
		return false
	}
	w.state, w.rejected = left, err
	w.Signal()
	return true
}

// StillWaits reports whether w waits, and no release that names it is under way.
func (qs *Queues) StillWaits(w *Waiter) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return w.state == waiting && w.rejected == nil
}

// OwnerMayHold makes w check whether its owner has the lock.
func (qs *Queues) OwnerMayHold(w *Waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w.ownerHolds = true
	w.Signal()
}

// At returns the waiters of the LOCK or LOCKALL that waits for a lock under a name: see calledAs.
func (qs *Queues) At(id names.Lock, as string) []*Waiter {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of[id]
	if q == nil {
		return nil
	}
	for e := q.waiters.Front(); e != nil; e = e.Next() {
		w := e.Value.(*Waiter)
		if !slices.Contains(w.calledAs(w == q.first()), as) {
			continue
		}
		if w.all != nil {
			return w.all.Waiters
		}
		return []*Waiter{w}
	}
	return nil
}

// standing is what keeps a waiter from the lock, besides the holders.
type standing struct {
	As       []string // its names in places
	Enough   int      // how many holders of a shared lock keep it waiting
	Behind   string   // the request of the last LOCKALL before it, "" for none
	AllSince int64    // since when the first waiter waits, if that is a LOCKALL
}

// Standings are those of the waiters of a LOCK or LOCKALL. ok is false if it no longer waits.
func (qs *Queues) Standings(waiters []*Waiter) (list []standing, ok bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if lead := waiters[0]; lead.place == nil || lead.rejected != nil {
		return nil, false
	}
	for _, w := range waiters {
		first := qs.of[w.ID()].first()
		s := standing{As: w.calledAs(w == first), Enough: w.enough()}
		if all := w.behind(); all != nil {
			s.Behind = all.Lead().RequestID()
		}
		if first.all != nil {
			s.AllSince = first.all.since
		}
		list = append(list, s)
	}
	return list, true
}
