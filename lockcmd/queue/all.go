package queue

import (
	"slices"

	"lockproxy/lockcmd/script"
)

// FirstKnown is since when the upstream knows g, 0 if it does not. Only its own command may ask.
func (g *Wait) FirstKnown() int64 { return g.since }

// firstEverywhere reports whether a LOCKALL is the first waiter of each lock: only then it polls.
// mu is held.
func (g *Wait) firstEverywhere() bool {
	return !slices.ContainsFunc(g.Waiters, func(w *Waiter) bool { return !w.isFirst() })
}

// The places of LOCKALLs that wait. The upstream knows one for each lock of which a LOCKALL is the
// first waiter here, with the time since when it waits: so other proxies let it go first, also
// while the lock is free and the LOCKALL waits for another one. A waiter in front of it has no
// later time (`told` of take.lua). So of all that have places the one with the earliest time waits
// for none of the others.

// Places says where a LOCKALL is the first waiter.
type Places struct {
	Flags   string // `first_at` of all.lua
	Any     bool
	All     bool
	Untold  bool // the upstream does not know all of them
	PollNow bool // one of the locks may be free
}

// Places returns where g is first.
func (g *Wait) Places() (p Places) {
	g.queues.mu.Lock()
	defer g.queues.mu.Unlock()
	for _, w := range g.Waiters {
		first := w.isFirst()
		p.Flags += script.Flag(first)
		p.Any, p.Untold = p.Any || first, p.Untold || first && !w.placed
		p.PollNow = p.PollNow || w.pollNow
	}
	p.All = g.firstEverywhere()
	return p
}

// Told notes that the upstream knows where g is first, and since when it waits: now, if it has not
// said so before.
func (g *Wait) Told(at Places, now int64) {
	qs := g.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if g.since == 0 {
		g.since = g.sinceInOrder(now)
	}
	for i, w := range g.Waiters {
		if at.Flags[i] == '1' {
			w.placed = true
			w.line.listed = true // it keeps its place
		}
	}
}

// sinceInOrder is since when g waits, which is now by its first answer: but not before one that
// came earlier here, nor after one that came later. Answers can come in another order. mu is held.
func (g *Wait) sinceInOrder(now int64) int64 {
	for e := g.turn.Next(); e != nil; e = e.Next() {
		if since := e.Value.(*Wait).since; since != 0 {
			now = min(now, since)
			break
		}
	}
	for e := g.turn.Prev(); e != nil; e = e.Prev() {
		if since := e.Value.(*Wait).since; since != 0 {
			return max(now, since)
		}
	}
	return now
}

// allSince is since when the first LOCKALL of the queue waits that the upstream knows of, ms; 0 if
// there is none.
func (q *waitQueue) allSince() int64 {
	place := q.waiters.Front()
	for left := q.alls; left > 0; place = place.Next() {
		if w := place.Value.(*Waiter); w.IsAll {
			if left--; w.since != 0 {
				return w.since
			}
		}
	}
	return 0
}
