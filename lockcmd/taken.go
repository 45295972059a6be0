package lockcmd

import "time"

// What a connection has locked and not released: while its proxy shuts down it is kept for that, since without the connection nobody
// could release the lock who doesn't know its token.

// maxTaken bounds what is remembered one by one.
const maxTaken = 64

// taken is a lock that a connection was given, and how long it may last.
type taken struct {
	at    lineKey
	until time.Time
}

// takenLocks are those that a connection may hold still. Only the session's goroutine uses them.
type takenLocks struct {
	list []taken
	more time.Time // when those beyond maxTaken have ended
}

func (t *takenLocks) add(at lineKey, until time.Time) {
	t.remove(at)
	if len(t.list) >= maxTaken {
		t.prune(time.Now())
	}
	if len(t.list) < maxTaken {
		t.list = append(t.list, taken{at, until})
	} else if until.After(t.more) {
		t.more = until
	}
}

func (t *takenLocks) remove(at lineKey) {
	for i := range t.list {
		if t.list[i].at == at {
			last := len(t.list) - 1
			t.list[i] = t.list[last]
			t.list[last] = taken{}
			t.list = t.list[:last]
			return
		}
	}
}

// extend is for a lock that is to last until another time, if the connection has it.
func (t *takenLocks) extend(at lineKey, until time.Time) {
	for i := range t.list {
		if t.list[i].at == at {
			t.list[i].until = until
		}
	}
}

// prune forgets what has expired.
func (t *takenLocks) prune(now time.Time) {
	kept := t.list[:0]
	for _, one := range t.list {
		if one.until.After(now) {
			kept = append(kept, one)
		}
	}
	clear(t.list[len(kept):])
	t.list = kept
}

// Holds reports whether the connection may hold a lock: one that it has taken and not released, nor another for it. until is when the
// last of them has expired, at the latest; zero if they are renewed. It is for the session's goroutine.
func (h *Holder) Holds() (until time.Time, holds bool) {
	h.mu.Lock()
	sessions := len(h.leases)
	h.mu.Unlock()
	now := time.Now()
	h.taken.prune(now)
	until = h.taken.more
	for _, one := range h.taken.list {
		if one.until.After(until) {
			until = one.until
		}
	}
	if sessions > 0 {
		return time.Time{}, true
	}
	return until, until.After(now)
}
