package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// waitAll is LOCKALL … WAIT for patience; 0 is forever.
func (l *waits) waitAll(
	ctx context.Context, s session, rs lockRequests, patience time.Duration,
) Reply {
	g := l.queues.JoinAll(rs, s.As, patience, time.Now())
	pause, err := l.pollAll(s, g, rs, g.Places())
	queued := err == nil && g.Polled.Token == 0
	if queued {
		for _, w := range g.Waiters {
			l.seen.waitBegan(w)
			l.notifications.Listen(w.As, w.Key)
		}
		endWatch := l.deadlocks.Watch(&g.Wait)
		err = l.waitTurns(ctx, s, g, rs, patience, pause)
		endWatch()
		for _, w := range g.Waiters {
			l.seen.waitEnded(w, err == nil && g.Polled.Token != 0)
		}
	}
	return l.endWaitAll(ctx, s, g, rs, queued, err)
}

// waitTurns returns when the locks are g's, its time has expired, its client is disconnected, or a
// poll has failed. pause is the time to the next poll.
func (l *waits) waitTurns(
	ctx context.Context, s session, g *queue.All, rs lockRequests, patience, pause time.Duration,
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
			err, stale := g.Outage(time.Now())
			if !stale {
				return err
			}
			_, err = l.pollAll(s, g, rs, g.Places())
			if err == nil && g.Polled.Token == 0 {
				err, _ = g.Outage(time.Now()) // after a transient failure
			}
			return err
		case <-slow.due():
			if err := l.warnSlow(s, g.Lead); err != nil {
				return err
			}
			continue
		case <-next.due():
			timeToPoll = true
		case <-g.Woken():
			woken = true
		}
		at := g.Places()
		if at.Err != nil {
			return at.Err
		}
		ownerHolds := g.TakeOwnerHolds()
		switch {
		case at.All && at.PollNow, at.Any && timeToPoll, at.Untold, ownerHolds:
			pause, err = l.pollAll(s, g, rs, at)
			if err != nil || g.Polled.Token != 0 {
				return err
			}
			next.arm(pause)
		case timeToPoll:
			next.arm(queue.IdlePause())
		case at.All && woken:
			for _, w := range g.Waiters {
				next.armSooner(l.pollInterval(w, w.State().Lease))
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
	s session, g *queue.All, rs lockRequests, at queue.Places,
) (pause time.Duration, err error) {
	mode := script.ModeCheck
	if at.All {
		mode = script.ModeFirst
		g.BeginPoll()
	}
	g.PollBegan(time.Now())
	defer g.PollEnded() // once the queues know how the poll ended
	a, now, err := l.tryAll(s, rs, mode, at.Flags(), g)
	g.Polled = a
	switch {
	case err != nil && a.Token == 0 && l.isTransient(err):
		return g.PollAfter(err), nil
	case err != nil:
		if a.Token == 0 && !concernsOneKey(err) {
			g.PollFailed(err, time.Now())
		}
		return 0, err
	case a.Token == 0:
		g.Told(at, now)
		g.Answered(false)
		if !at.All {
			return queue.IdlePause(), nil
		}
		return l.pollAllInterval(g, a.Remaining), nil
	}
	return 0, g.Grant(a)
}

// tryAll runs all.lua once for a waiter.
func (l *waits) tryAll(
	s session, rs lockRequests, mode, firstAt string, g *queue.All,
) (a script.Attempt, now int64, err error) {
	t, err := l.beginTryAll(s.Client, rs, mode, firstAt, g.FirstKnown())
	if err != nil {
		return script.Attempt{AskedAt: t.askedAt}, 0, err
	}
	t.Until = g.AnswerBy(time.Now())
	answer, err := s.Eval(&t.Call)
	return l.finishTryAll(t, answer, err)
}

// pollAllInterval is the time to the next poll of g, if its locks end after remaining. Where
// foreign clients compete for a lock, it has that tracked.
func (l *waits) pollAllInterval(g *queue.All, remaining time.Duration) time.Duration {
	pause := queue.MaxPoll
	for _, w := range g.Waiters {
		if l.queues.Of(w.ID()).ForeignCompete(time.Now()) {
			l.tracking.Want(w.As, w.Key)
		}
		pause = min(pause, l.pollInterval(w, remaining))
	}
	return pause
}

// endWaitAll takes a LOCKALL out of the queues and makes its reply.
func (l *waits) endWaitAll(
	ctx context.Context, s session, g *queue.All, rs lockRequests, queued bool, err error,
) Reply {
	loopguard.MayWait()
	a, end := g.Polled, g.End(err)
	won, err := end.Won, end.Err
	l.releases.waitNoMore(end.Missed)
	l.seen.observeWaited(g.Lead, won, err)
	if !won && end.Unknown {
		l.releases.releaseAbandoned(rs.locks(g.As, 0)...)
	}
	switch {
	case won && queued && context.Cause(ctx) == failure.ErrGone:
		// The client was disconnected while the locks were on their way.
		if !a.Before {
			l.releases.releaseAbandoned(rs.locks(g.As, a.Token)...)
		}
		return chain.Failed(failure.ErrGone)
	case won:
		if queued {
			a.Waited = time.Since(g.Joined)
		}
		return l.acquired(s.Client, rs, a)
	case err != nil:
		reply, next := l.failed(s.Client, rs, a, err)
		return chain.Drive(s, reply, next)
	}
	return chain.Null
}
