package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/monotonic"
)

// How often the first waiter polls. It is notified of releases, but not of a DEL or a foreign
// client's release, and a message may be lost.
const (
	minPoll = 210 * time.Millisecond
	maxPoll = 245 * time.Millisecond
)

// pollOrPause polls. Unless that ends the wait, it returns the time to the next poll.
func (l *Locks) pollOrPause(
	ctx context.Context, s Session, w *waiter,
) (pause time.Duration, err error) {
	id := w.id()
	again := w.polled
	remaining, err := l.poll(s, w)
	switch {
	case err == nil:
		l.recovered(id)
		if remaining > 0 && (again || l.foreignCompete(id)) {
			l.tracking.want(w.as, w.key)
		}
		return l.pollInterval(w, remaining), nil
	case l.isTransient(ctx, err):
		return l.pollAfter(w, err), nil
	}
	l.pollFailed(w, err)
	return 0, err
}

// poll tries to take the lock for w, which is first. If another has it, remaining is its lease.
func (l *Locks) poll(s Session, w *waiter) (remaining time.Duration, err error) {
	l.mu.Lock()
	mode := modeFirst
	if w.polled && !w.pollNow {
		mode = modeAgain
	}
	w.pollNow, w.polled = false, true
	l.mu.Unlock()
	w.pollStarted.Store(monotonic.Now())
	a, err := l.try(s, w, mode)
	w.pollStarted.Store(0)
	if rejected := l.rollBack(s, w, a, err); rejected != nil {
		return 0, rejected
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.state == granted: // by a release, while this was under way
		w.supersede(a)
		return 0, nil
	case err != nil || a.token == 0:
		if a.foreign {
			l.foreign.won(w.id(), time.Now())
		}
		return a.remaining, err
	}
	w.attempt = a
	l.queues[w.id()].quota = 0
	l.queues[w.id()].grant(w, a.token)
	return 0, nil
}

// check finds out for a waiter that does not poll yet whether it may lock here at all, and whether
// it is the owner already.
func (l *Locks) check(s Session, w *waiter) error {
	a, err := l.try(s, w, modeCheck)
	if rejected := l.rollBack(s, w, a, err); rejected != nil {
		return rejected
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil || a.token == 0:
	case w.state == granted:
		w.supersede(a)
	default:
		w.attempt = a
		l.queues[w.id()].grant(w, a.token)
	}
	return err
}

// try runs lock.lua once for a waiter. If an error comes with a token, the caller must undo that,
// unless the connection had it before.
func (l *Locks) try(s Session, w *waiter, mode string) (attempt, error) {
	t, err := l.beginTry(w.id(), w.lockRequest, mode)
	if err != nil {
		return attempt{askedAt: t.askedAt}, err
	}
	t.Until = w.answerBy()
	answer, err := s.Eval(&t.Call)
	return l.finishTry(t, answer, err)
}

// answerBy is when w stops waiting for the answer to a script that it sends now: at the end of its
// wait, but not before a healthy upstream can have answered.
func (w *waiter) answerBy() time.Time {
	if least := time.Now().Add(maxSilence); !w.until.IsZero() && w.until.Before(least) {
		return least
	}
	return w.until
}

// rollBack takes back the lock that a poll or a check has taken for w if too few replicas have it,
// or if w has been rejected meanwhile. Then w has left, and is given no lock any more. It returns
// the error for w's client, nil if there was nothing to take back.
func (l *Locks) rollBack(s Session, w *waiter, a attempt, err error) error {
	missing := err != nil && a.token != 0 && !a.renewed
	l.mu.Lock()
	if missing && w.rejected == nil {
		w.rejected = err
	}
	rejected := w.rejected
	if rejected != nil {
		w.state = left
	}
	l.mu.Unlock()
	if (rejected != nil || err != nil) && a.token != 0 && !a.before {
		l.undo(s, w.lock(a.token))
	}
	return rejected
}

// pollInterval is the time to the next poll of w, which is first, when the lock has remaining to
// run.
func (l *Locks) pollInterval(w *waiter, remaining time.Duration) time.Duration {
	pause := jitter(minPoll, maxPoll)
	if l.foreignCompete(w.id()) && !l.tracking.tracks(w.as, w.key) {
		pause = jitter(minForeignPoll, maxForeignPoll)
	}
	// Expired means now >= value, on a clock of whole milliseconds.
	return min(pause, remaining+time.Millisecond)
}
