package queue

import (
	"errors"
	"math/rand/v2"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// How often the first waiter polls. It is notified of LOCK's releases, but not of a DEL or a
// foreign client's release, and a message may be lost.
const (
	minPoll = 210 * time.Millisecond
	MaxPoll = 245 * time.Millisecond
)

// jitter returns a duration between lo and hi.
func jitter(lo, hi time.Duration) time.Duration { return lo + rand.N(hi-lo) }

// IdlePause is the time to the next poll of one that has not seen the lock.
func IdlePause() time.Duration { return jitter(minPoll, MaxPoll) }

// PollInterval is the time to the next poll of w, which is first, if the lock ends after remaining.
// followed says that Tracking follows it.
func (qs *Queues) PollInterval(w *Waiter, remaining time.Duration, followed bool) time.Duration {
	pause := IdlePause()
	if !followed && qs.ForeignCompete(w.ID()) {
		pause = jitter(minForeignPoll, maxForeignPoll)
	}
	// Expired means now >= value, on a clock of whole milliseconds.
	return min(pause, max(remaining-qs.ways.RoundTrip(w.Key), 0)+time.Millisecond)
}

// BeforeTry is what a script that asks for a lock must know: whether foreign clients compete for
// it, whether clients wait here, and since when a LOCKALL among them does; 0 is none.
func (qs *Queues) BeforeTry(id names.Lock) (compete, waited bool, allSince int64) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of[id]
	if q != nil {
		allSince = q.allSince()
	}
	return qs.foreign.compete(id, time.Now()), q != nil, allSince
}

// BeginPoll notes that w, which is first, polls now. again says that only time has passed since its
// last poll. others are the waiters behind it that are offered a shared lock with it.
func (qs *Queues) BeginPoll(w *Waiter) (again bool, others []*Waiter) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	again = w.polled && !w.pollNow
	w.pollNow, w.polled = false, true
	if q := qs.of[w.ID()]; q != nil && q.first() == w {
		others = q.offerShared(time.Now())
	}
	return again, others
}

// EndPoll notes what a poll of w has found. has says that w has the lock: by this poll, or by a
// release while it was under way.
func (qs *Queues) EndPoll(w *Waiter, a script.Attempt) (has bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.of[w.ID()]; q != nil {
		q.heldShared = a.HeldShared
		q.listed = q.listed || a.Token == 0 && !a.Foreign
	}
	if w.state == granted {
		return true
	}
	if a.Foreign {
		qs.foreign.won(w.ID(), time.Now())
	}
	return false
}

// EndShared ends the offers to waiters behind w of a poll for a shared lock. missing is why they
// must not keep it; unknown is why the outcome is not known.
func (qs *Queues) EndShared(
	w *Waiter, others []*Waiter, a script.Attempt, missing, unknown error,
) Ends {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of[w.ID()]
	if q == nil {
		q = &waitQueue{}
	}
	ends := q.endOffers(others, a.Token+1, a.Given-1, missing, unknown)
	if a.Token != 0 {
		q.pollNow() // so that other proxies see that clients still wait
	}
	return ends
}

// Settle gives w the lock that a poll or a check has taken for it. If w must not keep the lock
// because of err, or has been rejected meanwhile, it has left, and is offered no lock again. Then
// the caller takes the lock back. It returns the error for w's client, nil if w was not rejected.
func (qs *Queues) Settle(w *Waiter, a script.Attempt, err error) (rejected error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if err != nil && a.Token != 0 && !a.Renewed && w.rejected == nil {
		w.rejected = err
	}
	switch {
	case w.rejected != nil:
		w.state = left
	case err != nil || a.Token == 0:
	case w.state == granted: // by a release, while this was under way
		w.supersede(a)
	default:
		q := qs.of[w.ID()]
		if !a.Renewed {
			q.quota = 0
		}
		w.Attempt = a
		q.grant(w, a.Token)
	}
	return w.rejected
}

// Serve gives w the value that it waited for, and all with its login that have waited for it since
// before it was asked for. given says that a release had given w the lock, which it does not need.
func (qs *Queues) Serve(w *Waiter, value *string, asked time.Time) (given bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	given = w.state == granted && !w.Before
	w.answer(value)
	if q := qs.of[w.ID()]; q != nil {
		q.answer(w.As, w.Value, value, asked)
	}
	return given
}

// PollBegan notes that w has sent a poll, and PollEnded that the queue knows how that ended: see
// outage.
func (w *Waiter) PollBegan() { w.pollStarted.Store(monotonic.Now()) }

func (w *Waiter) PollEnded() { w.pollStarted.Store(0) }

// AnswerBy is when w stops waiting for the answer to a script that it sends now: at the end of its
// wait, but not before a healthy upstream has had time to answer.
func (qs *Queues) AnswerBy(w *Waiter) time.Time {
	patience := maxSilence + qs.ways.RoundTrip(w.Key)
	if least := time.Now().Add(patience); !w.until.IsZero() && w.until.Before(least) {
		return least
	}
	return w.until
}

// How often a waiter polls while the upstream is being replaced.
const (
	minOutagePoll = 30 * time.Millisecond
	maxOutagePoll = 60 * time.Millisecond
)

// PollAfter notes a poll's transient failure. It returns the time to the next poll.
func (qs *Queues) PollAfter(w *Waiter, err error) time.Duration {
	qs.mu.Lock()
	if q := qs.of[w.ID()]; q != nil { // otherwise a release has given w the lock meanwhile
		q.failing = err
	}
	if failure.MayHaveRun(err) && w.Owner == "" { // otherwise an older lock may be its owner's
		w.unknownOutcome = true
	}
	qs.mu.Unlock()
	var held failure.HeldOffError
	if errors.As(err, &held) {
		return time.Duration(held)
	}
	return jitter(minOutagePoll, maxOutagePoll)
}

// PollFailed notes that a poll has failed for good. The next waiter polls at once, so that all
// waiters learn one after another that the upstream is lost. Until a poll is answered, no waiter
// is told that the lock is held.
func (qs *Queues) PollFailed(w *Waiter, err error) {
	var said script.ServerError
	if err == failure.ErrGone || failure.IsUnconfirmed(err) || failure.IsDeadlock(err) ||
		failure.IsUnblocked(err) || errors.As(err, &said) && script.HasCode(said, "NOPERM", "NOAUTH") {
		return // this concerns w alone
	}
	var late failure.LateError
	if errors.As(err, &late) {
		err = failure.SilentError(time.Since(w.Joined)) // nothing was sent for the others
	}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.of[w.ID()]; q != nil {
		q.failing, w.pollNow = err, true
	}
}

// Answered notes that a poll has been answered. trusted says that the next one may be far off.
func (qs *Queues) Answered(id names.Lock, trusted bool) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.of[id]; q != nil {
		q.failing, q.trusted = nil, trusted
	}
}

// maxSilence is how long the first waiter's poll can be unanswered before the others are no longer
// told that the lock is held. A round trip to a far upstream is added.
const maxSilence = time.Second

// Outage is the error for a waiter whose time has expired: nil if another client seems to hold the
// lock. stale says that no recent poll has shown that: the first waiter polls seldom, or is a
// LOCKALL that waits for its turn at another lock.
func (qs *Queues) Outage(id names.Lock) (err error, stale bool) {
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
