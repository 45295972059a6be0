package lockcmd

import (
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
)

// How often the first waiter polls. It is notified of LOCK's releases, but not of a DEL or a
// foreign client's release, and a message may be lost.
const (
	minPoll = 210 * time.Millisecond
	maxPoll = 245 * time.Millisecond

	// maxTrustedPoll is how often it polls where keyTracking follows a foreign client's lock: every
	// change is reported, and the lock's end is known. But a connection can be dead without a sign.
	maxTrustedPoll = 5 * time.Second
)

// pollOrPause polls. Unless that ends the wait, it returns the time to the next poll.
func (l *waits) pollOrPause(s session, w *waiter) (pause time.Duration, err error) {
	id := w.id()
	again := w.polled
	before, _ := l.tracking.follows(w.as, w.Key)
	w.pollStarted.Store(monotonic.Now())
	defer w.pollStarted.Store(0) // once the queue knows how the poll ended: see queues.outage
	a, err := l.poll(s, w)
	switch {
	case err == nil:
		after, _ := l.tracking.follows(w.as, w.Key)
		trusted := a.Foreign && before && after
		l.queues.answered(id, trusted)
		if trusted {
			return min(maxTrustedPoll, a.Remaining+time.Millisecond), nil
		}
		if a.Remaining > 0 && (again || l.queues.foreignCompete(id)) {
			l.tracking.want(w.as, w.Key)
		}
		return l.pollInterval(w, a.Remaining), nil
	case l.isTransient(err):
		return l.queues.pollAfter(w, err), nil
	}
	l.queues.pollFailed(w, err)
	return 0, err
}

// poll tries to take the lock for w, which is first. If another client has the lock, it returns
// what it found.
func (l *waits) poll(s session, w *waiter) (found script.Attempt, err error) {
	if w.Value != "" && w.polled { // otherwise it has just been read
		if there, err := l.readForAll(s, w); there || err != nil {
			return script.Attempt{}, err
		}
	}
	l.queues.mu.Lock()
	mode := script.ModeFirst
	if w.polled && !w.pollNow {
		mode = script.ModeAgain
	}
	w.pollNow, w.polled = false, true
	var others []*waiter
	if q := l.queues.of[w.id()]; q != nil && q.first() == w {
		others = q.offerShared(time.Now())
	}
	l.queues.mu.Unlock()
	a, err := l.try(s, w, mode, others)
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
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	if q := l.queues.of[w.id()]; q != nil {
		q.heldShared = a.HeldShared
		q.listed = q.listed || a.Token == 0 && !a.Foreign
	}
	if w.state == granted { // by this poll, or by a release while it was under way
		return script.Attempt{}, nil
	}
	if a.Foreign {
		l.queues.foreign.won(w.id(), time.Now())
	}
	return a, err
}

// endShared ends the offers to waiters behind w of a poll for a shared lock.
func (l *waits) endShared(s session, w *waiter, others []*waiter, a script.Attempt, err error) {
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
	l.queues.mu.Lock()
	q := l.queues.of[w.id()]
	if q == nil {
		q = &waitQueue{}
	}
	ends := q.endOffers(others, a.Token+1, a.Given-1, missing, unknown)
	if a.Token != 0 {
		q.pollNow() // so that other proxies see that clients still wait
	}
	l.queues.mu.Unlock()
	l.releases.startAbandoned(ends)
	reply, next := l.releases.undoAll(s.Holder, ends.rejected, Reply{})
	chain.Drive(s, reply, next)
}

// check finds out whether a waiter that does not poll yet may lock here at all, and whether its
// owner has the lock already.
func (l *waits) check(s session, w *waiter) error {
	a, err := l.try(s, w, script.ModeCheck, nil)
	if rejected := l.settle(s, w, a, err); rejected != nil {
		return rejected
	}
	return err
}

// try runs lock.lua once for a waiter. If an error comes with a token, the caller must undo that,
// unless the connection had it before.
func (l *waits) try(s session, w *waiter, mode string, others []*waiter) (script.Attempt, error) {
	t, err := l.beginTry(w.id(), w.Request, mode, others)
	if err != nil {
		return script.Attempt{}, err
	}
	t.Until = l.queues.answerBy(w)
	answer, err := s.Eval(&t.Call)
	return l.finishTry(t, answer, err)
}

// answerBy is when w stops waiting for the answer to a script that it sends now: at the end of its
// wait, but not before a healthy upstream has had time to answer.
func (qs *queues) answerBy(w *waiter) time.Time {
	patience := maxSilence + qs.ways.RoundTrip(w.Key)
	if least := time.Now().Add(patience); !w.until.IsZero() && w.until.Before(least) {
		return least
	}
	return w.until
}

// settle gives w the lock that a poll or a check has taken for it. If w must not keep the lock, or
// has been rejected meanwhile, settle takes it back: then w has left, and is offered no lock again.
// It returns the error for w's client, nil if w was not rejected.
func (l *waits) settle(s session, w *waiter, a script.Attempt, err error) error {
	l.queues.mu.Lock()
	if err != nil && a.Token != 0 && !a.Renewed && w.rejected == nil {
		w.rejected = err
	}
	rejected := w.rejected
	switch {
	case rejected != nil:
		w.state = left
	case err != nil || a.Token == 0:
	case w.state == granted: // by a release, while this was under way
		w.supersede(a)
	default:
		q := l.queues.of[w.id()]
		if !a.Renewed {
			q.quota = 0
		}
		w.Attempt = a
		q.grant(w, a.Token)
	}
	l.queues.mu.Unlock()
	if (rejected != nil || err != nil) && a.Token != 0 && !a.Before {
		l.releases.undo(s, s.Holder, w.lock(a.Token))
	}
	return rejected
}

// pollInterval is the time to the next poll of w, which is first, if the lock ends after remaining.
func (l *waits) pollInterval(w *waiter, remaining time.Duration) time.Duration {
	pause := jitter(minPoll, maxPoll)
	_, followed := l.tracking.follows(w.as, w.Key)
	if !followed && l.queues.foreignCompete(w.id()) {
		pause = jitter(minForeignPoll, maxForeignPoll)
	}
	// Expired means now >= value, on a clock of whole milliseconds.
	return min(pause, max(remaining-l.queues.ways.RoundTrip(w.Key), 0)+time.Millisecond)
}
