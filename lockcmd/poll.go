package lockcmd

import (
	"cmp"
	"math/rand/v2"
	"time"

	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// waitStep is LOCK … WAIT, or ONCE … WAIT, for patience; 0 is forever.
func (l *waits) waitStep(
	c Client, r script.Request, patience time.Duration,
) (Reply, *Step) {
	w, at := l.queues.Join(r, c.As, patience, time.Now())
	t := l.newTurn(c, w.Wait, patience)
	by := oneLock{l, w}
	t.by = by
	begin := func(pause time.Duration, err error) (Reply, *Step) {
		if at := w.State(); at.First && pause == notPolled {
			pause = l.pollInterval(w, at.Lease)
		}
		return t.begin(pause, err)
	}
	switch {
	case at.First && !at.ForeignTurn: // the lock is probably free
		return by.pollOrPause(t, begin)
	case at.First || !at.Permitted || r.Owner != "":
		return by.check(t, func(err error) (Reply, *Step) {
			if err != nil && l.isTransient(err) {
				return begin(t.pauseAfter(err), nil)
			}
			return begin(notPolled, err)
		})
	}
	return begin(notPolled, nil)
}

// oneLock is a LOCK … WAIT.
type oneLock struct {
	*waits
	w *queue.Waiter
}

// look implements asks.
func (l oneLock) look(t *turn, paused bool) (Reply, *Step) {
	w, at := l.w, l.w.State()
	switch {
	case at.Checks && w.TakeOwnerHolds() && !at.First: // the first polls, which finds the same
		return l.check(t, func(err error) (Reply, *Step) {
			if err != nil && !l.isTransient(err) {
				return t.leave(err)
			}
			return t.stay()
		})
	case at.First && (paused || at.PollNow || at.Checks):
		return l.pollOrPause(t, func(pause time.Duration, err error) (Reply, *Step) {
			if err != nil || w.State().Ended {
				return t.leave(err)
			}
			l.seen.findHolder(w)
			t.poll.in(pause)
			return t.stay()
		})
	case paused:
		t.poll = moment{}
	}
	if at.First && (t.woken || t.poll.IsZero()) {
		t.poll.sooner(l.pollInterval(w, at.Lease))
	}
	t.woken = false
	return t.rest()
}

// lastLook implements asks.
func (l oneLock) lastLook(t *turn) (Reply, *Step) {
	asked := time.Now()
	return l.check(t, func(err error) (Reply, *Step) {
		if failure.IsSilence(err) {
			err = failure.SilentError(time.Since(asked))
		}
		return t.leave(err)
	})
}

// toUndo implements asks: settle has undone it.
func (l oneLock) toUndo() script.Attempt { return script.Attempt{} }

// maxTrustedPoll is how often the first waiter polls where Tracking follows a foreign client's
// lock, or one that has not changed for about a second: every change is reported, and the lock's
// end is known. But a connection can be dead without a sign.
const maxTrustedPoll = 5500 * time.Millisecond

// pollOrPause polls. Unless that ends the wait, then gets the time to the next poll.
func (l oneLock) pollOrPause(
	t *turn, then func(pause time.Duration, err error) (Reply, *Step),
) (Reply, *Step) {
	w := l.w
	again, quiet := w.Polled, w.Quiet(time.Now())
	before, _ := l.listener.Follows(w.As, w.Key)
	w.PollBegan(time.Now())
	return l.poll(t, quiet && before, func(a script.Attempt, err error) (Reply, *Step) {
		pause := time.Duration(0)
		switch {
		case failure.IsStopped(err):
		case err == nil:
			pause = l.pauseAfter(a, quiet, before, again)
		case l.goesOn(w.Wait, err):
			pause, err = t.pauseAfter(err), nil
		default:
			w.PollFailed(err, time.Now())
		}
		w.PollEnded() // now the queue knows how the poll ended
		return then(pause, err)
	})
}

// pauseAfter is the time to the next poll behind one that has found a. quiet, before and again are
// what Quiet, Tracking.Follows and Polled said before it.
func (l oneLock) pauseAfter(a script.Attempt, quiet, before, again bool) time.Duration {
	w := l.w
	after, _ := l.listener.Follows(w.As, w.Key)
	trusted := (a.Foreign || quiet) && before && after
	w.Answered(trusted)
	if trusted {
		pause := maxTrustedPoll - rand.N(maxTrustedPoll/10) // they do not poll all at once
		return min(pause, a.Remaining+time.Millisecond)
	}
	if a.Remaining > 0 && (quiet || again && a.Foreign ||
		l.queues.Of(w.ID()).ForeignCompete(time.Now())) {
		l.listener.Want(w.As, w.Key)
	}
	return l.pollInterval(w, a.Remaining)
}

// goesOn reports whether w waits on although its poll has failed with err.
func (l *waits) goesOn(w *queue.Wait, err error) bool {
	return l.isTransient(err) && (l.cfg.Moves || !w.SilentTooLong(err, time.Now()))
}

// poll tries to take the lock for the waiter, which is first. tracks says that it may poll seldom
// from now on.
func (l oneLock) poll(t *turn, tracks bool, then attempted) (Reply, *Step) {
	if !l.w.Once || !l.w.Polled { // otherwise it has just been read
		return l.take(t, tracks, then)
	}
	return l.readForAll(t, l.w, func(there bool, err error) (Reply, *Step) {
		if there || err != nil {
			return then(script.Attempt{}, err)
		}
		return l.take(t, tracks, then)
	})
}

// take is poll, once it is known that there is no value.
func (l oneLock) take(t *turn, tracks bool, then attempted) (Reply, *Step) {
	w, mode := l.w, script.ModeFirst
	again, others, behind := w.BeginPoll(time.Now())
	if again {
		mode = script.ModeAgain
	}
	how := trial{mode: mode, others: offersOf(others, behind), tracks: tracks}
	return t.try(how, others, func(a script.Attempt, err error) (Reply, *Step) {
		taken := func() (Reply, *Step) {
			return l.settle(t, a, err, func(rejected error) (Reply, *Step) {
				found, failed := a, err
				if rejected != nil || w.EndPoll(a, time.Now()) {
					found, failed = script.Attempt{}, rejected
				}
				return l.endShared(t, others, a, err, func() (Reply, *Step) { return then(found, failed) })
			})
		}
		switch {
		case a.Made: // it must be read; if it is gone again, the next poll is soon
			return l.readForAll(t, w, func(_ bool, err error) (Reply, *Step) {
				return then(script.Attempt{}, err)
			})
		case a.Token != 0 && !a.Taken && w.State().Offered:
			// A release that has given w the lock must end before the poll that found it.
			return t.until(time.Now().Add(l.offerPatience(w)),
				func(bool) bool { return !w.State().Offered }, taken)
		}
		return taken()
	})
}

// endShared ends the offers to waiters behind of a poll for a shared lock.
func (l oneLock) endShared(
	t *turn, others []*queue.Waiter, a script.Attempt, err error, then func() (Reply, *Step),
) (Reply, *Step) {
	if !l.w.Shared {
		return then()
	}
	var missing, unknown error
	switch {
	case err != nil && a.Token != 0:
		missing = err
	case err != nil && failure.MayHaveRun(err):
		unknown = err
	}
	ends := l.w.EndShared(others, a, missing, unknown)
	l.releases.startAbandoned(ends)
	return t.through(l.releases.undo(t.c.Holder, rejectedLocks(ends.Rejected), true,
		func(bool) (Reply, *Step) { return then() }))
}

// check finds out whether a waiter that does not poll yet may lock here at all, and whether its
// owner has the lock already.
func (l oneLock) check(t *turn, then func(err error) (Reply, *Step)) (Reply, *Step) {
	how := trial{mode: script.ModeCheck}
	return t.try(how, nil, func(a script.Attempt, err error) (Reply, *Step) {
		return l.settle(t, a, err, func(rejected error) (Reply, *Step) {
			return then(cmp.Or(rejected, err))
		})
	})
}

// settle is Waiter.Settle, and takes back what the waiter must not keep.
func (l oneLock) settle(
	t *turn, a script.Attempt, err error, then func(refused error) (Reply, *Step),
) (Reply, *Step) {
	kept, refused := l.w.Settle(a, err)
	if kept || a.Token == 0 || a.Before {
		return then(refused)
	}
	undo := []rejectedLock{{Lock: lockOf(l.w, a.Token)}}
	return t.through(l.releases.undo(t.c.Holder, undo, true, func(undone bool) (Reply, *Step) {
		if !undone {
			refused = l.w.NotUndone()
		}
		return then(refused)
	}))
}

// pollInterval is the time to the next poll of w, which is first, if the lock ends after remaining.
func (l *waits) pollInterval(w *queue.Waiter, remaining time.Duration) time.Duration {
	_, followed := l.listener.Follows(w.As, w.Key)
	return w.PollInterval(remaining, followed, time.Now())
}
