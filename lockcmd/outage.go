package lockcmd

import (
	"errors"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// How often a waiter polls while the upstream is being replaced.
const (
	minOutagePoll = 30 * time.Millisecond
	maxOutagePoll = 60 * time.Millisecond
)

// pollAfter notes a poll's transient failure. It returns the time to the next poll.
func (qs *queues) pollAfter(w *waiter, err error) time.Duration {
	qs.mu.Lock()
	if q := qs.of[w.id()]; q != nil { // otherwise a release has given w the lock meanwhile
		q.failing = err
	}
	if failure.MayHaveRun(err) && w.Owner == "" { // as in releases.failed
		w.unknownOutcome = true
	}
	qs.mu.Unlock()
	var held failure.HeldOffError
	if errors.As(err, &held) {
		return time.Duration(held)
	}
	return jitter(minOutagePoll, maxOutagePoll)
}

// pollFailed notes that a poll has failed for good. The next waiter polls at once, so that all
// waiters learn one after another that the upstream has gone. Until a poll is answered, no waiter
// is told that the lock is held.
func (qs *queues) pollFailed(w *waiter, err error) {
	var said script.ServerError
	if err == failure.ErrGone || failure.IsUnconfirmed(err) || failure.IsDeadlock(err) ||
		failure.IsUnblocked(err) || errors.As(err, &said) && script.HasCode(said, "NOPERM", "NOAUTH") {
		return // this concerns w alone
	}
	var late failure.LateError
	if errors.As(err, &late) {
		err = failure.SilentError(time.Since(w.joined)) // nothing was sent for the others
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.of[w.id()]; q != nil {
		q.failing, w.pollNow = err, true
	}
}

// answered notes that a poll has been answered. trusted says that the next one may be far off.
func (qs *queues) answered(id names.Lock, trusted bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.of[id]; q != nil {
		q.failing, q.trusted = nil, trusted
	}
}

// maxSilence is how long the first waiter's poll can be unanswered before the others are no longer
// told that the lock is held. A round trip to a far upstream is added.
const maxSilence = time.Second

// outage is the error for a waiter whose time is over: nil if another client seems to hold the
// lock. stale says that no recent poll has shown that: the first waiter polls seldom, or is a
// LOCKALL that waits for its turn at another lock.
func (qs *queues) outage(id names.Lock) (err error, stale bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of[id]
	switch {
	case q == nil:
		return nil, false
	case q.failing != nil:
		return q.failing, false
	case q.first() == nil:
		return nil, false
	}
	first := q.first()
	asked := first.pollStarted.Load()
	if silence := monotonic.Since(asked); asked != 0 && silence > maxSilence+qs.ways.RoundTrip(id.Key) {
		return failure.SilentError(silence), false
	}
	return nil, q.trusted || first.all != nil && !qs.firstEverywhere(first.all)
}
