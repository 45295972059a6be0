package queue

import (
	"container/list"
	"slices"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// All is one LOCKALL … WAIT: a waiter in each queue. One channel wakes them all.
type All struct {
	Waiters []*Waiter
	Polled  script.Attempt // the last poll
	// since is when the upstream first heard of it, ms; 0 is never. It is set with Queues.mu held.
	since   int64
	Unknown bool          // a poll has failed that may have taken the locks
	turn    *list.Element // among queues.alls
}

// Lead is the waiter that stands for all of them.
func (g *All) Lead() *Waiter { return g.Waiters[0] }

// PollBegan and PollEnded are those of all of its waiters.
func (g *All) PollBegan() {
	for _, w := range g.Waiters {
		w.PollBegan()
	}
}

func (g *All) PollEnded() {
	for _, w := range g.Waiters {
		w.PollEnded()
	}
}

// FirstKnown is since when the upstream knows g, 0 if it does not. Only its own command may ask.
func (g *All) FirstKnown() int64 { return g.since }

// JoinAll puts a LOCKALL into the queues, at the end of each. It waits for patience; 0 is forever.
// EndAll must follow.
func (qs *Queues) JoinAll(
	rs []script.Request, as names.Identity, patience time.Duration,
) (g *All) {
	qs.waiters.Add(1)
	g = &All{}
	now := time.Now()
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, r := range rs {
		w := NewWaiter(r, as)
		w.all, w.Joined = g, now
		if patience > 0 {
			w.until = now.Add(patience)
		}
		if len(g.Waiters) > 0 {
			w.wake = g.Lead().wake
		}
		g.Waiters = append(g.Waiters, w)
		qs.queueLocked(w.ID()).join(w)
	}
	qs.asking[g.Lead().Connection] = g.Lead()
	g.turn = qs.alls.PushBack(g)
	return g
}

// BeginPollAll notes that g polls now.
func (qs *Queues) BeginPollAll(g *All) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for _, w := range g.Waiters {
		w.pollNow = false
	}
}

// GrantAll gives g the locks that a poll has taken for it. It fails if g was rejected meanwhile:
// then it must not keep them.
func (qs *Queues) GrantAll(g *All, a script.Attempt) error {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if err := g.Lead().rejected; err != nil {
		return err
	}
	for _, w := range g.Waiters {
		w.Attempt = a
		q := qs.of[w.ID()]
		q.quota = 0
		q.grant(w, a.Token)
	}
	return nil
}

// EndAll takes g out of the queues. won says that it has the locks, err why it has failed. missed
// are its waiters that were the last, and for which others may go on waiting.
func (qs *Queues) EndAll(g *All, won bool, err error) (missed []Departed, failed error) {
	defer qs.waiters.Add(-1)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	delete(qs.asking, g.Lead().Connection)
	qs.alls.Remove(g.turn)
	if !won && err == nil {
		err = g.Lead().rejected
	}
	for _, w := range g.Waiters {
		if !won {
			w.state = left
		}
		if qs.leaveLocked(w) {
			missed = append(missed, Departed{w, w.pollNow})
		}
	}
	return missed, err
}

// departed is a waiter that has left. PollNow says that the lock may be reserved for this proxy.
type Departed struct {
	*Waiter
	PollNow bool
}

// firstEverywhere reports whether a LOCKALL is the first waiter of each lock: only then it polls.
// mu is held.
func (qs *Queues) firstEverywhere(g *All) bool {
	return !slices.ContainsFunc(g.Waiters, func(w *Waiter) bool {
		return w.place == nil || qs.of[w.ID()].first() != w
	})
}

// OutageAll is Queues.Outage for any of the locks that a LOCKALL waits for.
func (qs *Queues) OutageAll(g *All) (err error, stale bool) {
	for _, w := range g.Waiters {
		err, old := qs.Outage(w.ID())
		if err != nil {
			return err, false
		}
		stale = stale || old
	}
	return nil, stale
}
