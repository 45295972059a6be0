package lockcmd

// What a lock command does about an upstream that doesn't serve at the moment.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lockproxy/internal/monotonic"
)

// How often a waiter polls while the upstream is being replaced.
const (
	minOutagePoll = 30 * time.Millisecond
	maxOutagePoll = 60 * time.Millisecond
)

// isTransient reports whether an upstream that failed with err is worth waiting for: another server is
// to take its place. How the request itself went doesn't matter to a waiter: repeated, it finds
// what it was given by its own name, or nothing.
func (l *Locks) isTransient(ctx context.Context, err error) bool {
	var held heldOffError
	if errors.As(err, &held) {
		return true
	}
	var late LateError
	if !l.cfg.Moves || context.Cause(ctx) == ErrLost || errors.As(err, &late) {
		return false
	}
	var said ServerError
	if errors.As(err, &said) {
		return hasCode(said, "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK")
	}
	var failed interface{ MayHaveRun() bool }
	return errors.As(err, &failed)
}

// pollAfter notes that a poll of w's has failed with err, which may pass, and returns how long to
// wait for the next.
func (l *Locks) pollAfter(id LockID, w *waiter, err error) time.Duration {
	l.mu.Lock()
	l.queues[id].failing = err
	w.unknownOutcome = w.unknownOutcome || mayHaveRun(err) && w.owner == "" // as in failed
	l.mu.Unlock()
	var held heldOffError
	if errors.As(err, &held) {
		return time.Duration(held)
	}
	return jitter(minOutagePoll, maxOutagePoll)
}

// pollFailed has the next in line poll at once when a poll of w's has failed for good: so all in
// the line learn one after another that the upstream is gone. Until a poll is answered nobody is
// told that the lock is another's.
func (l *Locks) pollFailed(id LockID, w *waiter, err error) {
	var said ServerError
	if err == ErrGone || isNoReplicas(err) || errors.As(err, &said) && hasCode(said, "NOPERM", "NOAUTH") {
		return // that concerns w alone
	}
	var late LateError
	if errors.As(err, &late) {
		err = silentError(time.Since(w.joined)) // the others have asked nothing that may run
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.queues[id]; q != nil {
		q.failing, w.pollNow = err, true
	}
}

// recovered notes that a poll has been answered.
func (l *Locks) recovered(id LockID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.queues[id]; q != nil {
		q.failing = nil
	}
}

// maxSilence is how long the first in line may be without an answer before those behind it can't be
// told that the lock is another's.
const maxSilence = time.Second

// silentError says so.
type silentError time.Duration

func (e silentError) Error() string {
	return fmt.Sprintf("has not answered for %v: whether the lock is held is not known, it was not acquired", time.Duration(e).Round(time.Millisecond))
}

// MayHaveRun reports that nothing was asked for whom this is told.
func (e silentError) MayHaveRun() bool { return false }

// outage is what those who wait for a lock are answered when their time is over: nil if it is held
// by another, as far as is known.
func (l *Locks) outage(id LockID) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[id]
	switch {
	case q == nil:
		return nil
	case q.failing != nil:
		return q.failing
	case q.first() == nil:
		return nil
	}
	asks := q.first().pollStarted.Load()
	if silence := monotonic.Since(asks); asks != 0 && silence > maxSilence {
		return silentError(silence)
	}
	return nil
}
