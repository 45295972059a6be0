package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// beginLockAll is LOCKALL.
func (l *waits) beginLockAll(c Client, args [][]byte) *Step {
	o, keys, err := syntax.ParseLockAll(args, l.cfg.MaxTimeout)
	if err == nil {
		err = l.permit(o)
	}
	if err != nil {
		return chain.Answered(chain.Failed(err))
	}
	rs := make(lockRequests, len(keys))
	for i, key := range keys {
		rs[i] = c.Request(string(key), o.Request)
		rs[i].Number = rs[0].Number
	}
	if o.Waits {
		return &Step{Wait: func(ctx context.Context, on chain.Upstream, wake func()) chain.Turn {
			return l.waitAll(ctx, session{c, on}, rs, o.Wait, wake)
		}}
	}
	t, held := l.beginTryAll(c, rs, script.ModeTry, "", 0, 0)
	if held != nil {
		return &Step{Finish: func(script.Answer, error) (Reply, *Step) {
			return l.tried(c, rs, script.Attempt{}, held)
		}}
	}
	return &Step{Call: &t.Call, Finish: func(answer script.Answer, err error) (Reply, *Step) {
		return l.lookForClaims(t.claimRecords(answer, err), func(claims []resp.Value) (Reply, *Step) {
			a, err := l.finishTryAll(t, answer, claims, err)
			return l.tried(c, rs, a, err)
		})
	}}
}

// allLocks is a LOCKALL … WAIT.
type allLocks struct {
	*waits
	s      session
	g      *queue.All
	rs     lockRequests
	polled script.Attempt // the last poll
}

// waitAll begins a LOCKALL … WAIT for patience; 0 is forever.
func (l *waits) waitAll(
	ctx context.Context, s session, rs lockRequests, patience time.Duration, wake func(),
) *turn {
	g := l.queues.JoinAll(rs, s.As, patience, time.Now())
	by := &allLocks{waits: l, s: s, g: g, rs: rs}
	pause, err := by.pollAll(g.Places())
	by.s = l.own(ctx, s, &g.Wait)
	return l.beginTurn(by.s, &g.Wait, by, patience, pause, wake, err)
}

// look implements asks.
func (l *allLocks) look(t *turn, paused, inLoop bool) (chain.Progress, error) {
	at := l.g.Places()
	asks := at.All && at.PollNow || at.Any && paused || at.Untold || l.g.Lead.State().Checks
	switch {
	case asks && inLoop:
		return chain.Asks, nil
	case asks:
		l.g.TakeOwnerHolds()
		pause, err := l.pollAll(at)
		if err != nil || l.polled.Token != 0 {
			return chain.Ended, err
		}
		t.poll.in(pause)
	case paused:
		t.poll.in(queue.IdlePause())
	case at.All && t.woken:
		for _, w := range l.g.Waiters {
			t.poll.sooner(l.pollInterval(w, w.State().Lease))
		}
	}
	return chain.Sleeps, nil
}

// lastLook implements asks.
func (l *allLocks) lastLook() error {
	err, stale := l.g.Outage(time.Now())
	if !stale {
		return err
	}
	_, err = l.pollAll(l.g.Places())
	if err == nil && l.polled.Token == 0 {
		err, _ = l.g.Outage(time.Now()) // after a transient failure
	}
	return err
}

// toUndo implements asks.
func (l *allLocks) toUndo() script.Attempt { return l.polled }

// concernsOneKey reports whether a LOCKALL has failed because of one of its keys. Those who wait
// for another key are not told that.
func concernsOneKey(err error) bool {
	said, ok := err.(script.ServerError)
	return ok && script.HasCode(said, "WRONGTYPE", "CROSSSLOT")
}

// pollAll tries to take the locks, if g is first everywhere. Otherwise it checks, as check does. It
// tells the upstream where g is first. Unless that ends the wait, it returns the time to the next
// poll.
func (l *allLocks) pollAll(at queue.Places) (pause time.Duration, err error) {
	mode := script.ModeCheck
	if at.All {
		mode = script.ModeFirst
		l.g.BeginPoll(time.Now())
	}
	l.g.PollBegan(time.Now())
	defer l.g.PollEnded() // once the queues know how the poll ended
	a, err := l.tryAll(mode, at)
	l.polled = a
	switch {
	case failure.IsStopped(err):
		return 0, err
	case err != nil && a.Token == 0 && l.goesOn(&l.g.Wait, err):
		return l.g.PollAfter(err), nil
	case err != nil:
		if a.Token == 0 && !concernsOneKey(err) {
			l.g.PollFailed(err, time.Now())
		}
		return 0, err
	case a.Token != 0:
		return 0, l.g.Grant(a)
	}
	l.g.Told(at, a.Now)
	l.g.Answered(false)
	if !at.All {
		return queue.IdlePause(), nil
	}
	return l.pollAllInterval(a.Remaining), nil
}

// tryAll runs all.lua once.
func (l *allLocks) tryAll(mode string, at queue.Places) (script.Attempt, error) {
	var t *allCall
	answer, err := l.inTime(l.s, &l.g.Wait, func(ends int64) (c *script.Call, err error) {
		t, err = l.beginTryAll(l.s.Client, l.rs, mode, at.Flags(), l.g.FirstKnown(), ends)
		return &t.Call, err
	})
	l.lateAnswer(err, l.rs[0].Key, t.askedAt, func(answer script.Answer, err error) []queue.Handed {
		a, err := l.finishTryAll(t, answer, nil, err)
		return l.g.SettleLate(a, err, failure.MayHaveRun(err))
	})
	var claims []resp.Value
	for _, key := range t.claimRecords(answer, err) {
		claim, _ := l.s.Get(key, t.Until)
		claims = append(claims, claim)
	}
	return l.finishTryAll(t, answer, claims, err)
}

// pollAllInterval is the time to the next poll of g, if its locks end after remaining. Where
// foreign clients compete for a lock, it has that tracked.
func (l *allLocks) pollAllInterval(remaining time.Duration) time.Duration {
	pause := queue.MaxPoll
	for _, w := range l.g.Waiters {
		if l.queues.Of(w.ID()).ForeignCompete(time.Now()) {
			l.tracking.Want(w.As, w.Key)
		}
		pause = min(pause, l.pollInterval(w, remaining))
	}
	return pause
}
