package lockcmd

// What a lock command does about an upstream that doesn't serve at the moment.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/monotonic"
)

// mayHaveRun reports whether the request that failed with err may have been carried out all the
// same.
func mayHaveRun(err error) bool {
	var said ServerError
	var held heldOffError
	var sent interface{ MayHaveRun() bool }
	switch {
	case errors.As(err, &said), errors.As(err, &held), isNoReplicas(err), err == ErrGone:
		return false
	case errors.As(err, &sent):
		return sent.MayHaveRun()
	}
	return true
}

// hasCode reports whether an error reply begins with one of these words.
func hasCode(said ServerError, codes ...string) bool {
	code, _, _ := strings.Cut(string(said), " ")
	return slices.Contains(codes, code)
}

// relayedError is an UPSTREAM error that came as a reply: of a cluster of which one node was lost,
// where the connection to the others goes on, or of a lockproxy behind this one. Its text is
// without UPSTREAM.
type relayedError string

func (e relayedError) Error() string { return string(e) }

// MayHaveRun reports whether the request may have been carried out: its words are passthrough's.
func (e relayedError) MayHaveRun() bool { return !strings.Contains(string(e), "nothing was sent") }

// errorOf is what an error reply says.
func errorOf(text []byte) error {
	if said, ok := strings.CutPrefix(string(text), "UPSTREAM "); ok {
		return relayedError(said)
	}
	return ServerError(text)
}

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

// LateError says that a wait was over before the upstream had answered a script. Answered is closed
// when it has, or is lost; nil says that the script was not sent, behind another that is late.
type LateError struct{ Answered <-chan struct{} }

func (e LateError) Error() string {
	if e.Answered == nil {
		return "does not answer: nothing was sent, try again"
	}
	return "has not answered in time: whether the lock was taken is not known, try again"
}

// MayHaveRun reports whether the script may yet run.
func (e LateError) MayHaveRun() bool { return e.Answered != nil }

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
