package lockcmd

import (
	"container/list"
	"context"
	"slices"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/monotonic"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// allWaiter is one LOCKALL … WAIT: a waiter in each queue. One channel wakes them all.
type allWaiter struct {
	waiters []*waiter
	polled  script.Attempt // the last poll
	// since is when the upstream first heard of it, ms; 0 is never. It is set with queues.mu held.
	since   int64
	unknown bool          // a poll has failed that may have taken the locks
	turn    *list.Element // among queues.alls
}

// lead is the waiter that stands for all of them.
func (g *allWaiter) lead() *waiter { return g.waiters[0] }

// pollStarted notes for all of its waiters when the poll under way began.
func (g *allWaiter) pollStarted(at int64) {
	for _, w := range g.waiters {
		w.pollStarted.Store(at)
	}
}

// joinAll puts a LOCKALL into the queues, at the end of each.
func (l *waits) joinAll(s session, rs lockRequests, patience time.Duration) (g *allWaiter) {
	g = &allWaiter{}
	now := time.Now()
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	for _, r := range rs {
		w := newWaiter(r, s.As)
		w.all, w.joined = g, now
		if patience > 0 {
			w.until = now.Add(patience)
		}
		if len(g.waiters) > 0 {
			w.wake = g.lead().wake
		}
		g.waiters = append(g.waiters, w)
		l.queues.queueLocked(w.id()).join(w)
	}
	l.queues.asking[s.Connection] = g.lead()
	g.turn = l.queues.alls.PushBack(g)
	return g
}

// firstEverywhere reports whether a LOCKALL is the first waiter of each lock: only then it polls.
// mu is held.
func (qs *queues) firstEverywhere(g *allWaiter) bool {
	return !slices.ContainsFunc(g.waiters, func(w *waiter) bool {
		return w.place == nil || qs.of[w.id()].first() != w
	})
}

// outageAll is queues.outage for any of the locks that a LOCKALL waits for.
func (qs *queues) outageAll(g *allWaiter) (err error, stale bool) {
	for _, w := range g.waiters {
		err, old := qs.outage(w.id())
		if err != nil {
			return err, false
		}
		stale = stale || old
	}
	return nil, stale
}

// waitAll is LOCKALL … WAIT for patience, 0 without end.
func (l *waits) waitAll(
	ctx context.Context, s session, rs lockRequests, patience time.Duration,
) Reply {
	l.queues.waiters.Add(1)
	defer l.queues.waiters.Add(-1)
	g := l.joinAll(s, rs, patience)
	pause, err := l.pollAll(s, g, rs, l.queues.placesOf(g))
	queued := err == nil && g.polled.Token == 0
	if queued {
		for _, w := range g.waiters {
			l.seen.waitBegan(w)
			l.notifications.listen(w.as, w.Key)
		}
		endWatch := l.deadlocks.watch(g.waiters...)
		err = l.waitTurns(ctx, s, g, rs, patience, pause)
		endWatch()
		for _, w := range g.waiters {
			l.seen.waitEnded(w, err == nil && g.polled.Token != 0)
		}
	}
	return l.endWaitAll(ctx, s, g, rs, queued, err)
}

// waitTurns returns when the locks are g's, its time is over, its client has gone, or a poll has
// failed. pause is the time to the next poll.
func (l *waits) waitTurns(
	ctx context.Context, s session, g *allWaiter, rs lockRequests, patience, pause time.Duration,
) (err error) {
	loopguard.MayWait()
	over := timerAfter(patience)
	defer over.stop()
	slow := l.seen.slowTimer()
	defer slow.stop()
	var next lazyTimer
	defer next.stop()
	next.arm(pause)
	for {
		timeToPoll, woken := false, false
		select {
		case <-ctx.Done():
			return failure.ErrGone
		case <-over.due():
			err, stale := l.queues.outageAll(g)
			if !stale {
				return err
			}
			_, err = l.pollAll(s, g, rs, l.queues.placesOf(g))
			if err == nil && g.polled.Token == 0 {
				err, _ = l.queues.outageAll(g) // after a transient failure
			}
			return err
		case <-slow.due():
			if err := l.warnSlow(s, g.lead()); err != nil {
				return err
			}
			continue
		case <-next.due():
			timeToPoll = true
		case <-g.lead().wake:
			woken = true
		}
		if _, err := l.queues.outcome(g.lead()); err != nil {
			return err
		}
		at := l.queues.placesOf(g)
		ownerHolds := l.queues.takeOwnerHolds(g.lead())
		switch {
		case at.all && at.pollNow, at.any && timeToPoll, at.untold, ownerHolds:
			pause, err = l.pollAll(s, g, rs, at)
			if err != nil || g.polled.Token != 0 {
				return err
			}
			next.arm(pause)
		case timeToPoll:
			next.arm(jitter(minPoll, maxPoll))
		case at.all && woken:
			for _, w := range g.waiters {
				_, lease := l.queues.position(w)
				next.armSooner(l.pollInterval(w, lease))
			}
		}
	}
}

// concernsOneKey reports whether a LOCKALL has failed because of one of its keys. Those who wait
// for another key are not told that.
func concernsOneKey(err error) bool {
	said, ok := err.(script.ServerError)
	return ok && script.HasCode(said, "WRONGTYPE", "CROSSSLOT")
}

// pollAll tries to take the locks, if g is first everywhere. Otherwise it checks, as check does. It
// tells the upstream where g is first. Unless that ends the wait, it returns the time to the next
// poll.
func (l *waits) pollAll(
	s session, g *allWaiter, rs lockRequests, at allPlaces,
) (pause time.Duration, err error) {
	lead, mode := g.lead(), script.ModeCheck
	if at.all {
		mode = script.ModeFirst
		l.queues.mu.Lock()
		for _, w := range g.waiters {
			w.pollNow = false
		}
		l.queues.mu.Unlock()
	}
	g.pollStarted(monotonic.Now())
	defer g.pollStarted(0) // once the queues know how the poll ended: see queues.outage
	a, now, err := l.tryAll(s, rs, mode, at.flags(), g)
	g.polled = a
	switch {
	case err != nil && a.Token == 0 && l.isTransient(err):
		g.unknown = g.unknown || failure.MayHaveRun(err) && lead.Owner == ""
		for _, w := range g.waiters {
			pause = l.queues.pollAfter(w, err)
		}
		return pause, nil
	case err != nil:
		if a.Token == 0 && !concernsOneKey(err) {
			for _, w := range g.waiters {
				l.queues.pollFailed(w, err)
			}
		}
		return 0, err
	case a.Token == 0:
		l.queues.toldPlaces(g, at, now)
		for _, w := range g.waiters {
			l.queues.answered(w.id(), false)
		}
		if !at.all {
			return jitter(minPoll, maxPoll), nil
		}
		return l.pollAllInterval(g, a.Remaining), nil
	}
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	if lead.rejected != nil { // meanwhile: it must not keep them
		return 0, lead.rejected
	}
	for _, w := range g.waiters {
		w.Attempt = a
		q := l.queues.of[w.id()]
		q.quota = 0
		q.grant(w, a.Token)
	}
	return 0, nil
}

// tryAll runs all.lua once for a waiter.
func (l *waits) tryAll(
	s session, rs lockRequests, mode, firstAt string, g *allWaiter,
) (a script.Attempt, now int64, err error) {
	t, err := l.beginTryAll(s.Client, rs, mode, firstAt, g.since)
	if err != nil {
		return script.Attempt{AskedAt: t.askedAt}, 0, err
	}
	t.Until = l.queues.answerBy(g.lead())
	answer, err := s.Eval(&t.Call)
	return l.finishTryAll(t, answer, err)
}

// pollAllInterval is the time to the next poll of g, if its locks end after remaining. Where
// foreign clients compete for a lock, it has that tracked.
func (l *waits) pollAllInterval(g *allWaiter, remaining time.Duration) time.Duration {
	pause := maxPoll
	for _, w := range g.waiters {
		if l.queues.foreignCompete(w.id()) {
			l.tracking.want(w.as, w.Key)
		}
		pause = min(pause, l.pollInterval(w, remaining))
	}
	return pause
}

// endWaitAll takes a LOCKALL out of the queues and makes its reply.
func (l *waits) endWaitAll(
	ctx context.Context, s session, g *allWaiter, rs lockRequests, queued bool, err error,
) Reply {
	loopguard.MayWait()
	a, lead := g.polled, g.lead()
	won := err == nil && a.Token != 0
	l.queues.mu.Lock()
	delete(l.queues.asking, s.Connection)
	l.queues.alls.Remove(g.turn)
	if !won && err == nil {
		err = lead.rejected
	}
	for _, w := range g.waiters {
		if !won {
			w.state = left
		}
		if l.queues.leaveLocked(w) {
			l.releases.waitsNoMore(w.as, w.id(), w.pollNow)
		}
	}
	l.queues.mu.Unlock()
	l.seen.observeWaited(lead, won, err)
	if !won && g.unknown {
		l.releases.releaseAbandoned(rs.locks(lead.as, 0)...)
	}
	switch {
	case won && queued && context.Cause(ctx) == failure.ErrGone:
		// The client has gone while the locks were on their way.
		if !a.Before {
			l.releases.releaseAbandoned(rs.locks(lead.as, a.Token)...)
		}
		return chain.Failed(failure.ErrGone)
	case won:
		if queued {
			a.Waited = time.Since(lead.joined)
		}
		return l.acquired(s.Client, rs, a)
	case err != nil:
		reply, next := l.failed(s.Client, rs, a, err)
		return chain.Drive(s, reply, next)
	}
	return chain.Null
}
