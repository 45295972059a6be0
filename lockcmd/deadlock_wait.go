package lockcmd

import (
	"math"
	"slices"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
)

// waitAt returns the wait at a place here, nil if there is none.
func (d *deadlocks) waitAt(at deadlock.Place) *watchedWait {
	d.queues.mu.Lock()
	defer d.queues.mu.Unlock()
	q := d.queues.of[names.Lock{DB: at.DB, Key: string(at.Key)}]
	if q == nil {
		return nil
	}
	for e := q.waiters.Front(); e != nil; e = e.Next() {
		w := e.Value.(*waiter)
		if !slices.Contains(w.calledAs(w == q.first()), at.As) {
			continue
		}
		waiters := []*waiter{w}
		if w.all != nil {
			waiters = w.all.waiters
		}
		if w.Owner == "" && !tooLong(waiters) { // no search watches it
			return newWatchedWait(waiters)
		}
		return waiters[0].watched
	}
	return nil
}

// calledAs returns w's names in places. queues.mu is held.
func (w *waiter) calledAs(first bool) (as []string) {
	if w.all != nil {
		as = append(as, w.requestID())
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
	if w.all != nil && w.all.since != 0 {
		as = append(as, deadlock.AsListed(w.all.since))
	}
	return as
}

// waitOf returns v with what it waits for. ok is false if it no longer waits. A waiter whose owner
// has the lock already is woken to check that.
func (d *deadlocks) waitOf(v *watchedWait, of map[*waiter]*holding) (w deadlock.Wait, ok bool) {
	lead := v.lead()
	w = deadlock.Wait{ID: v.id, Proxy: d.Scripts.Proxy, Owner: deadlock.Binary(lead.Owner),
		DB: lead.as.DB, Since: v.since}
	d.queues.mu.Lock()
	defer d.queues.mu.Unlock()
	if lead.place == nil || lead.rejected != nil {
		return w, false
	}
	holders := 0
	for _, waiter := range v.waiters {
		q, h := d.queues.of[waiter.id()], of[waiter]
		k := deadlock.KeyWait{Key: deadlock.Binary(waiter.Key),
			As: waiter.calledAs(q.first() == waiter), Enough: 1}
		if v.ownerHolds(waiter, of) {
			w.Keys = append(w.Keys, k) // it need not wait for earlier waits either
			lead.ownerHolds = true
			lead.signal()
			continue
		}
		if h.shared {
			k.Enough = waiter.enough()
		}
		if all := waiter.behind(); all != nil {
			k.Before = append(k.Before, deadlock.Earlier{Proxy: d.Scripts.Proxy, As: all.lead().requestID()})
		}
		k.Before = append(k.Before, h.before(d.Scripts.Proxy, q.first())...)
		for _, by := range h.by {
			if by.Owner != "" && len(by.Owner) <= maxWaitName && holders < maxBlockers {
				k.Holders = append(k.Holders, by)
				holders++
			}
		}
		w.Keys = append(w.Keys, k)
	}
	return w, true
}

// ownerHolds reports whether the owner of w, one of v's waiters, has the lock already, so that w is
// given it, too. That happens if another request of the owner was delivered late.
func (v *watchedWait) ownerHolds(w *waiter, of map[*waiter]*holding) bool {
	return w.Owner != "" && slices.ContainsFunc(of[w].by, func(by deadlock.Holder) bool {
		return v.getsAgain(by, w, of)
	})
}

// getsAgain reports whether w, one of v's waiters, need not wait for a holder: it has the same
// owner, which is given the lock again. A shared lock it gets only as shared; LOCKALL gets all its
// locks again, or none.
func (v *watchedWait) getsAgain(by deadlock.Holder, w *waiter, of map[*waiter]*holding) bool {
	if string(by.Owner) != w.Owner {
		return false
	}
	if w.all == nil {
		return w.Shared || !of[w].shared
	}
	for _, w := range v.waiters {
		if h := of[w]; h.shared || !slices.Contains(h.by, by) {
			return false
		}
	}
	return true
}

// behind returns the last LOCKALL before w in its queue, nil if there is none. Another of its locks
// can hold it up. queues.mu is held.
func (w *waiter) behind() *allWaiter {
	for place := w.place.Prev(); place != nil; place = place.Prev() {
		if all := place.Value.(*waiter).all; all != nil {
			return all
		}
	}
	return nil
}

// enough returns how many holders of a shared lock keep w waiting: one if w or a waiter before it
// is exclusive, otherwise their lowest limit. queues.mu is held.
func (w *waiter) enough() int {
	least := math.MaxInt
	for place := w.place; place != nil; place = place.Prev() {
		v := place.Value.(*waiter)
		if !v.Shared {
			return 1
		}
		if v.Limit > 0 && v.Limit < int64(least) {
			least = int(v.Limit)
		}
	}
	return least
}
