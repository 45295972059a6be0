package lockcmd

import (
	"slices"
	"strings"

	"lockproxy/lockcmd/script"
)

// The places of LOCKALLs that wait. The upstream knows one for each lock of which a LOCKALL is the
// first waiter here, with the time since when it waits: so other proxies let it go first, also
// while the lock is free and the LOCKALL waits for another one. A waiter in front of it has no
// later time (A[14] of lock.lua). So of all that have places the one with the earliest time waits
// for none of the others.

// allPlaces says where a LOCKALL is the first waiter.
type allPlaces struct {
	first   []bool // by the lock
	any     bool
	all     bool
	untold  bool // the upstream does not know all of them
	pollNow bool // one of the locks may be free
}

// placesOf returns where a LOCKALL is first.
func (qs *queues) placesOf(g *allWaiter) (p allPlaces) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, w := range g.waiters {
		first := w.place != nil && qs.of[w.id()].first() == w
		p.first = append(p.first, first)
		p.any, p.untold = p.any || first, p.untold || first && !w.placed
		p.pollNow = p.pollNow || w.pollNow
	}
	p.all = !slices.Contains(p.first, false)
	return p
}

// flags are ARGV[4] of all.lua.
func (p allPlaces) flags() string {
	var text strings.Builder
	for _, first := range p.first {
		text.WriteString(script.Flag(first))
	}
	return text.String()
}

// toldPlaces notes that the upstream knows where a LOCKALL is first, and since when it waits: now,
// if it has not said so before.
func (qs *queues) toldPlaces(g *allWaiter, at allPlaces, now int64) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if g.since == 0 {
		g.since = qs.sinceInOrder(g, now)
	}
	for i, w := range g.waiters {
		if at.first[i] {
			w.placed = true
			qs.of[w.id()].listed = true // it keeps its place
		}
	}
}

// sinceInOrder is since when a LOCKALL waits, which is now by its first answer: but not before one
// that came earlier here, nor after one that came later. Answers can come in another order. mu is
// held.
func (qs *queues) sinceInOrder(g *allWaiter, now int64) int64 {
	for e := g.turn.Next(); e != nil; e = e.Next() {
		if since := e.Value.(*allWaiter).since; since != 0 {
			now = min(now, since)
			break
		}
	}
	for e := g.turn.Prev(); e != nil; e = e.Prev() {
		if since := e.Value.(*allWaiter).since; since != 0 {
			return max(now, since)
		}
	}
	return now
}

// allSince is since when the first LOCKALL of the queue waits that the upstream knows of, ms; 0 if
// there is none.
func (q *waitQueue) allSince() int64 {
	for place := q.waiters.Front(); place != nil; place = place.Next() {
		if all := place.Value.(*waiter).all; all != nil && all.since != 0 {
			return all.since
		}
	}
	return 0
}
