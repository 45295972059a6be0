package search

import (
	"slices"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/queue"
)

// waitAt returns the wait at a place here, nil if there is none.
func (d *Deadlocks) waitAt(at deadlock.Place) *watchedWait {
	w := d.queues.Of(names.Lock{DB: at.DB, Key: string(at.Key)}).At(at.As)
	if w == nil {
		return nil
	}
	if w.Lead.Owner == "" && !tooLong(w) { // no search watches it
		return newWatchedWait(w)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range d.of[hash("owner", w.Lead.Owner)] {
		if v.id == w.RequestID() {
			return v
		}
	}
	return nil
}

// waitOf returns v with what it waits for. ok is false if it no longer waits. A waiter whose owner
// has the lock already is woken to check that.
func (d *Deadlocks) waitOf(
	v *watchedWait, of map[*queue.Waiter]*holding,
) (w deadlock.Wait, ok bool) {
	w = deadlock.Wait{ID: v.id, Proxy: d.Scripts.Proxy, Owner: deadlock.Binary(v.Lead.Owner),
		DB: v.As.DB, Since: v.since}
	standings, ok := v.Standings()
	if !ok {
		return w, false
	}
	holders := 0
	for i, waiter := range v.Waiters {
		h, at := of[waiter], standings[i]
		k := deadlock.KeyWait{Key: deadlock.Binary(waiter.Key), As: at.As, Enough: 1}
		if v.ownerHolds(waiter, of) {
			w.Keys = append(w.Keys, k) // it need not wait for earlier waits either
			v.OwnerMayHold()
			continue
		}
		if h.shared {
			k.Enough = at.Enough
		}
		if at.Behind != "" {
			k.Before = append(k.Before, deadlock.Earlier{Proxy: d.Scripts.Proxy, As: at.Behind})
		}
		k.Before = append(k.Before, h.before(d.Scripts.Proxy, at.AllSince)...)
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
func (v *watchedWait) ownerHolds(w *queue.Waiter, of map[*queue.Waiter]*holding) bool {
	return w.Owner != "" && slices.ContainsFunc(of[w].by, func(by deadlock.Holder) bool {
		return v.getsAgain(by, w, of)
	})
}

// getsAgain reports whether w, one of v's waiters, need not wait for a holder: it has the same
// owner, which is given the lock again. A shared lock it gets only as shared; LOCKALL gets all its
// locks again, or none.
func (v *watchedWait) getsAgain(
	by deadlock.Holder, w *queue.Waiter, of map[*queue.Waiter]*holding,
) bool {
	if string(by.Owner) != w.Owner {
		return false
	}
	if !w.OfLockAll() {
		return w.Shared || !of[w].shared
	}
	for _, w := range v.Waiters {
		if h := of[w]; h.shared || !slices.Contains(h.by, by) {
			return false
		}
	}
	return true
}
