package lockcmd

import (
	"context"
	"math/rand/v2"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// beginLock is LOCK.
func (l *waits) beginLock(c Client, args [][]byte) *Step {
	o, err := syntax.ParseLock(args[1:], l.cfg.MaxTimeout)
	if err == nil {
		err = l.permit(o)
	}
	if err != nil {
		return chain.Answered(chain.Failed(err))
	}
	r := c.Request(string(args[0]), o.Request)
	if o.Waits {
		return l.waitStep(c, r, o.Wait)
	}
	return l.tryStep(c, r, func(a script.Attempt, err error) (Reply, *Step) {
		return l.tried(c, lockRequests{r}, a, err)
	})
}

// waitStep is LOCK … WAIT, or ONCE … WAIT, for patience; 0 is forever.
func (l *waits) waitStep(c Client, r script.Request, patience time.Duration) *Step {
	return &Step{Wait: func(ctx context.Context, on chain.Upstream, wake func()) chain.Turn {
		return l.wait(ctx, session{c, on}, r, patience, wake)
	}}
}

// oneLock is a LOCK … WAIT.
type oneLock struct {
	*waits
	s session
	w *queue.Waiter
}

// wait begins a LOCK … WAIT for patience; 0 is forever.
func (l *waits) wait(
	ctx context.Context, s session, r script.Request, patience time.Duration, wake func(),
) *turn {
	w, at := l.queues.Join(r, s.As, patience, time.Now())
	err, pause := error(nil), notPolled
	switch {
	case at.First && !at.ForeignTurn: // the lock is probably free
		pause, err = l.pollOrPause(s, w)
	case at.First || !at.Permitted || r.Owner != "":
		if err = l.check(s, w); err != nil && l.isTransient(err) {
			pause, err = w.PollAfter(err), nil
		}
	}
	if at := w.State(); at.First && pause == notPolled {
		pause = l.pollInterval(w, at.Lease)
	}
	s = l.own(ctx, s, w.Wait)
	return l.beginTurn(s, w.Wait, oneLock{l, s, w}, patience, pause, wake, err)
}

// look implements asks.
func (l oneLock) look(t *turn, paused, inLoop bool) (chain.Progress, error) {
	w, at := l.w, l.w.State()
	if inLoop && (at.Checks || at.First && (paused || at.PollNow)) {
		return chain.Asks, nil
	}
	if at.Checks && w.TakeOwnerHolds() {
		err := l.check(l.s, w)
		if err != nil && !l.isTransient(err) || w.State().Ended {
			return chain.Ended, err
		}
	}
	if at.First && (paused || at.PollNow) {
		pause, err := l.pollOrPause(l.s, w)
		if err != nil || w.State().Ended {
			return chain.Ended, err
		}
		l.seen.findHolder(w)
		t.poll.in(pause)
	} else if paused {
		t.poll = moment{}
	}
	if at := w.State(); at.First && (t.woken || t.poll.IsZero()) {
		t.poll.sooner(l.pollInterval(w, at.Lease))
	}
	return chain.Sleeps, nil
}

// lastLook implements asks.
func (l oneLock) lastLook() error {
	err, stale := l.w.Outage(time.Now())
	if !stale {
		return err
	}
	asked := time.Now()
	if err = l.check(l.s, l.w); failure.IsSilence(err) {
		err = failure.SilentError(time.Since(asked))
	}
	return err
}

// toUndo implements asks: settle has undone it.
func (l oneLock) toUndo() script.Attempt { return script.Attempt{} }

// maxTrustedPoll is how often the first waiter polls where Tracking follows a foreign client's
// lock, or one that has not changed for about a second: every change is reported, and the lock's
// end is known. But a connection can be dead without a sign.
const maxTrustedPoll = 5500 * time.Millisecond

// pollOrPause polls. Unless that ends the wait, it returns the time to the next poll.
func (l *waits) pollOrPause(s session, w *queue.Waiter) (pause time.Duration, err error) {
	again, quiet := w.HasPolled(), w.Quiet(time.Now())
	before, _ := l.tracking.Follows(w.As, w.Key)
	w.PollBegan(time.Now())
	defer w.PollEnded() // once the queue knows how the poll ended
	a, err := l.poll(s, w, quiet && before)
	switch {
	case failure.IsStopped(err):
		return 0, err
	case err == nil:
		after, _ := l.tracking.Follows(w.As, w.Key)
		trusted := (a.Foreign || quiet) && before && after
		w.Answered(trusted)
		if trusted {
			pause := maxTrustedPoll - rand.N(maxTrustedPoll/10) // they do not poll all at once
			return min(pause, a.Remaining+time.Millisecond), nil
		}
		if a.Remaining > 0 && (quiet || again && a.Foreign ||
			l.queues.Of(w.ID()).ForeignCompete(time.Now())) {
			l.tracking.Want(w.As, w.Key)
		}
		return l.pollInterval(w, a.Remaining), nil
	case l.goesOn(w.Wait, err):
		return w.PollAfter(err), nil
	}
	w.PollFailed(err, time.Now())
	return 0, err
}

// goesOn reports whether w waits on although its poll has failed with err.
func (l *waits) goesOn(w *queue.Wait, err error) bool {
	return l.isTransient(err) && (l.cfg.Moves || !w.SilentTooLong(err, time.Now()))
}

// poll tries to take the lock for w, which is first. If another client has the lock, it returns
// what it found. tracks says that it may poll seldom from now on.
func (l *waits) poll(s session, w *queue.Waiter, tracks bool) (found script.Attempt, err error) {
	if w.Once && w.HasPolled() { // otherwise it has just been read
		if there, err := l.readForAll(s, w); there || err != nil {
			return script.Attempt{}, err
		}
	}
	mode := script.ModeFirst
	again, others, behind := w.BeginPoll(time.Now())
	if again {
		mode = script.ModeAgain
	}
	a, err := l.try(s, w, mode, others, behind, tracks)
	defer l.endShared(s, w, others, a, err)
	if a.Made { // it must be read; if it is gone again, the next poll is soon
		_, err := l.readForAll(s, w)
		return script.Attempt{}, err
	}
	if a.Token != 0 {
		// A release that has given w the lock must end before the poll that found it.
		l.awaitOffer(w)
	}
	if rejected := l.settle(s, w, a, err); rejected != nil {
		return script.Attempt{}, rejected
	}
	if w.EndPoll(a, time.Now()) {
		return script.Attempt{}, nil
	}
	return a, err
}

// EndShared ends the offers to waiters behind w of a poll for a shared lock.
func (l *waits) endShared(
	s session, w *queue.Waiter, others []*queue.Waiter, a script.Attempt, err error,
) {
	if !w.Shared {
		return
	}
	var missing, unknown error
	switch {
	case err != nil && a.Token != 0:
		missing = err
	case err != nil && failure.MayHaveRun(err):
		unknown = err
	}
	ends := w.EndShared(others, a, missing, unknown)
	l.releases.startAbandoned(ends)
	reply, next := l.releases.undoAll(s.Holder, rejectedLocks(ends.Rejected), always(Reply{}))
	chain.Drive(s, reply, next)
}

// check finds out whether a waiter that does not poll yet may lock here at all, and whether its
// owner has the lock already.
func (l *waits) check(s session, w *queue.Waiter) error {
	a, err := l.try(s, w, script.ModeCheck, nil, nil, false)
	if rejected := l.settle(s, w, a, err); rejected != nil {
		return rejected
	}
	return err
}

// try runs lock.lua once for a waiter. If an error comes with a token, the caller must undo that,
// unless the connection had it before.
func (l *waits) try(
	s session, w *queue.Waiter, mode string, others []*queue.Waiter, behind *queue.Waiter,
	tracks bool,
) (script.Attempt, error) {
	var t *lockCall
	answer, err := l.inTime(s, w.Wait, func(ends int64) (c *script.Call, err error) {
		t, err = l.beginTry(w.ID(), w.Request, mode, offersOf(others, behind), tracks, ends)
		return &t.Call, err
	})
	l.lateAnswer(err, w.Key, t.askedAt, func(answer script.Answer, err error) []queue.Handed {
		a, err := l.finishTry(t, answer, false, err)
		return w.SettleLate(a, others, err, failure.MayHaveRun(err))
	})
	var claim resp.Value
	if key, ok := t.claimRecord(answer, err); ok {
		claim, _ = s.Get(key, t.Until)
	}
	return l.finishTry(t, answer, isRecord(claim), err)
}

// settle is Waiter.Settle, and takes back what w must not keep.
func (l *waits) settle(s session, w *queue.Waiter, a script.Attempt, err error) error {
	kept, refused := w.Settle(a, err)
	if !kept && a.Token != 0 && !a.Before && !l.releases.undo(s, s.Holder, lockOf(w, a.Token)) {
		refused = w.NotUndone()
	}
	return refused
}

// PollInterval is the time to the next poll of w, which is first, if the lock ends after remaining.
func (l *waits) pollInterval(w *queue.Waiter, remaining time.Duration) time.Duration {
	_, followed := l.tracking.Follows(w.As, w.Key)
	return w.PollInterval(remaining, followed, time.Now())
}
