package lockcmd

import (
	"fmt"
	"slices"
	"time"

	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/keyname"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// LOCKALL takes several locks or none. While it waits it holds none. It joins the queues of all its
// locks at the same moment, and asks for all of them when it is first in each: see script/all.lua.
// Other proxies see its place in each queue in which it is first, with the time at which it began
// to wait. So the earlier of two requests goes first, whichever locks they want, and no two wait
// for each other.

// beginLockAll is LOCKALL.
func (l *waits) beginLockAll(c Client, args [][]byte) *Step {
	o, keys, err := syntax.ParseLockAll(args, l.cfg.MaxTimeout)
	if err == nil {
		err = l.permit(o)
	}
	if err != nil {
		return refusedStep(err)
	}
	rs := make(lockRequests, len(keys))
	for i, key := range keys {
		if record := keyname.Record(key); slices.ContainsFunc(keys, func(other []byte) bool {
			return string(other) == record
		}) {
			return refusedStep(syntax.UsageError(fmt.Sprintf(
				"ERR %.80q is the record of the lock %.64q: choose another name", record, key)))
		}
		rs[i] = c.Request(string(key), o.Request)
		rs[i].Number = rs[0].Number
	}
	if o.Waits {
		return &Step{Finish: func(script.Answer, error) (Reply, *Step) {
			return l.waitAll(c, rs, o.Wait)
		}}
	}
	return l.tryStep(c, rs, true, func(a script.Attempt, err error) (Reply, *Step) {
		return l.tried(c, rs, a, err)
	})
}

// allLocks is a LOCKALL … WAIT.
type allLocks struct {
	*waits
	polled script.Attempt // the last poll
}

// waitAll begins a LOCKALL … WAIT for patience; 0 is forever.
func (l *waits) waitAll(c Client, rs lockRequests, patience time.Duration) (Reply, *Step) {
	w, by := l.queues.JoinAll(rs, c.As, patience, time.Now()), &allLocks{waits: l}
	t := l.newTurn(c, w, patience)
	t.by = by
	return by.pollAll(t, w.Places(), t.begin)
}

// look implements asks.
func (l *allLocks) look(t *turn, paused bool) (Reply, *Step) {
	at := t.w.Places()
	switch {
	case at.All && at.PollNow || at.Any && paused || at.Untold || t.w.Lead.State().Checks:
		t.w.TakeOwnerHolds()
		return l.pollAll(t, at, func(pause time.Duration, err error) (Reply, *Step) {
			if err != nil || l.polled.Token != 0 {
				return t.leave(err)
			}
			t.poll.in(pause)
			return t.stay()
		})
	case paused:
		t.poll.in(queue.IdlePause())
	case at.All && t.woken:
		for _, w := range t.w.Waiters {
			t.poll.sooner(l.pollInterval(w, w.State().Lease))
		}
	}
	t.woken = false
	return t.rest()
}

// lastLook implements asks.
func (l *allLocks) lastLook(t *turn) (Reply, *Step) {
	return l.pollAll(t, t.w.Places(), func(_ time.Duration, err error) (Reply, *Step) {
		if err == nil && l.polled.Token == 0 {
			err, _ = t.w.Outage(time.Now()) // after a transient failure
		}
		return t.leave(err)
	})
}

// toUndo implements asks.
func (l *allLocks) toUndo() script.Attempt { return l.polled }

// concernsOneKey reports whether a LOCKALL has failed because of one of its keys. Those who wait
// for another key are not told that.
func concernsOneKey(err error) bool {
	said, ok := err.(script.ServerError)
	return ok && script.HasCode(said, "WRONGTYPE", "CROSSSLOT")
}

// pollAll tries to take the locks, if t is first everywhere. Otherwise it checks, as check does. It
// tells the upstream where t is first. Unless that ends the wait, then gets the time to the next
// poll.
func (l *allLocks) pollAll(
	t *turn, at queue.Places, then func(pause time.Duration, err error) (Reply, *Step),
) (Reply, *Step) {
	mode := script.ModeCheck
	if at.All {
		mode = script.ModeFirst
		t.w.Lead.BeginPoll(time.Now())
	}
	t.w.PollBegan(time.Now())
	how := trial{all: true, mode: mode, firstAt: at.Flags, since: t.w.FirstKnown()}
	return t.try(how, nil, func(a script.Attempt, err error) (Reply, *Step) {
		pause, err := l.endPoll(t, at, a, err)
		t.w.PollEnded() // now the queues know how the poll ended
		return then(pause, err)
	})
}

// endPoll notes what a poll has found.
func (l *allLocks) endPoll(
	t *turn, at queue.Places, a script.Attempt, err error,
) (pause time.Duration, failed error) {
	l.polled = a
	switch {
	case failure.IsStopped(err):
		return 0, err
	case err != nil && a.Token == 0 && l.goesOn(t.w, err):
		return t.pauseAfter(err), nil
	case err != nil:
		if a.Token == 0 && !concernsOneKey(err) {
			t.w.PollFailed(err, time.Now())
		}
		return 0, err
	case a.Token != 0:
		_, refused := t.w.Lead.Settle(a, nil)
		return 0, refused
	}
	t.w.Told(at, a.Now)
	t.w.Answered(false)
	if !at.All {
		return queue.IdlePause(), nil
	}
	return l.pollAllInterval(t, a.Remaining), nil
}

// pollAllInterval is the time to the next poll of t, if its locks end after remaining. Where
// foreign clients compete for a lock, it has that tracked.
func (l *allLocks) pollAllInterval(t *turn, remaining time.Duration) time.Duration {
	pause := queue.MaxPoll
	for _, w := range t.w.Waiters {
		if l.queues.Of(w.ID()).ForeignCompete(time.Now()) {
			l.listener.Want(w.As, w.Key)
		}
		pause = min(pause, l.pollInterval(w, remaining))
	}
	return pause
}
