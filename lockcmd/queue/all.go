package queue

import (
	"container/list"
	"slices"

	"lockproxy/lockcmd/script"
)

// All is one LOCKALL … WAIT: a waiter in each queue. One channel wakes them all.
type All struct {
	Wait
	since int64         // when the upstream first heard of it, ms; 0 is never
	turn  *list.Element // among queues.alls
}

// FirstKnown is since when the upstream knows g, 0 if it does not. Only its own command may ask.
func (g *All) FirstKnown() int64 { return g.since }

// BeginPoll notes that g, which is first everywhere, polls now.
func (g *All) BeginPoll() {
	g.queues.mu.Lock()
	defer g.queues.mu.Unlock()
	for _, w := range g.Waiters {
		w.pollNow = false
	}
}

// Grant gives g the locks that a poll has taken for it. It fails if g was rejected meanwhile: then
// it must not keep them.
func (g *All) Grant(a script.Attempt) error {
	qs := g.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if g.rejected != nil {
		return g.rejected
	}
	for _, w := range g.Waiters {
		w.Attempt = a
		q := qs.of[w.ID()]
		q.quota = 0
		q.grant(w, a.Token)
	}
	return nil
}

// firstEverywhere reports whether a LOCKALL is the first waiter of each lock: only then it polls.
// mu is held.
func (g *All) firstEverywhere() bool {
	return !slices.ContainsFunc(g.Waiters, func(w *Waiter) bool {
		return w.place == nil || g.queues.of[w.ID()].first() != w
	})
}
