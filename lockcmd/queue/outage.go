package queue

import (
	"errors"
	"time"

	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// How waiters learn that the upstream is lost, silent or being replaced.

// How often a waiter polls while the upstream is being replaced.
const (
	minOutagePoll = 30 * time.Millisecond
	maxOutagePoll = 60 * time.Millisecond
)

// PollAfter notes a poll's transient failure. It returns the time to the next poll.
func (w *Wait) PollAfter(err error) time.Duration {
	silent := failure.IsSilence(err)
	w.queues.mu.Lock()
	for _, one := range w.Waiters {
		if silent && w.pollStarted.IsZero() { // a check's silence concerns w alone
			break
		}
		switch q := one.line; {
		case !silent:
			q.silentSince = time.Time{}
		case q.failing == nil || q.silentSince.IsZero():
			q.silentSince = w.pollStarted
		}
		one.line.failing = err
	}
	if failure.MayHaveRun(err) && w.Lead.Owner == "" { // otherwise an older lock may be its owner's
		w.unknown = true
	}
	if silent {
		w.unanswered++
	}
	w.queues.mu.Unlock()
	var held failure.HeldOffError
	if errors.As(err, &held) {
		return time.Duration(held)
	}
	return jitter(minOutagePoll, maxOutagePoll)
}

// longestSilence is how long an upstream may be silent before nobody waits for it, unless another
// server can take its place. With what comes before and behind it, a wait ends within 70 s.
const longestSilence = 50 * time.Second

// SilentTooLong reports whether err is a silence, and no poll has been answered for long.
func (w *Wait) SilentTooLong(err error, now time.Time) bool {
	if !failure.IsSilence(err) {
		return false
	}
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	since := w.Lead.line.silentSince
	return !since.IsZero() && now.Sub(since) >= longestSilence
}

// PollFailed notes that a poll has failed for good. The next waiter polls at once, so that all
// waiters learn one after another that the upstream is lost. If it has only been silent, all learn
// it at once. Until a poll is answered, no waiter is told that the lock is held.
func (w *Wait) PollFailed(err error, now time.Time) {
	var said script.ServerError
	if err == failure.ErrGone || failure.IsUnconfirmed(err) || failure.IsDeadlock(err) ||
		failure.IsUnblocked(err) || errors.As(err, &said) && script.HasCode(said, "NOPERM", "NOAUTH") {
		return // this concerns w alone
	}
	var late failure.LateError
	isLate, silent := errors.As(err, &late), failure.IsSilence(err)
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if isLate { // nothing was sent for the others
		since := w.Joined
		if !w.pollStarted.IsZero() {
			since = w.pollStarted
		}
		err = failure.SilentError(now.Sub(since))
	}
	for _, one := range w.Waiters {
		q := one.line
		if silent && !q.silentSince.IsZero() {
			q.refuseAll(failure.SilentError(now.Sub(q.silentSince)))
		}
		q.failing, q.silentSince, one.pollNow = err, time.Time{}, true
	}
}

// Answered notes that a poll has been answered. trusted says that the next one may be far off.
func (w *Wait) Answered(trusted bool) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.unanswered = 0
	for _, one := range w.Waiters {
		one.line.failing, one.line.trusted = nil, trusted
	}
}

// maxSilence is how long the first waiter's poll can be unanswered before the others are no longer
// told that the lock is held. A round trip to a far upstream is added.
const maxSilence = time.Second

// Outage is the error for w if its time has expired: nil if other clients seem to hold its locks.
// stale says that no recent poll has shown that: the first waiter of one polls seldom, or is a
// LOCKALL that waits for its turn at another lock.
func (w *Wait) Outage(now time.Time) (err error, stale bool) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	for _, one := range w.Waiters {
		err, old := one.outage(now)
		if err != nil {
			return err, false
		}
		stale = stale || old
	}
	return nil, stale
}

// outage is Outage for one lock. mu is held.
func (w *Waiter) outage(now time.Time) (err error, stale bool) {
	q := w.line
	first := q.first()
	switch {
	case q.failing != nil && !q.silentSince.IsZero():
		return failure.SilentError(now.Sub(q.silentSince)), false
	case q.failing != nil:
		return q.failing, false
	case first == nil:
		return nil, false
	}
	if began := first.pollStarted; !began.IsZero() {
		silence := now.Sub(began)
		if silence > maxSilence+w.queues.ways.RoundTrip(w.Key) {
			return failure.SilentError(silence), false
		}
	}
	return nil, q.trusted || first.IsAll && !first.firstEverywhere()
}
