package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/monotonic"
)

// How often the first waiter polls a lock of which it hears nothing. A release is told; a lost
// message, a DEL, or a foreign client's release is not.
const (
	minPoll = 210 * time.Millisecond
	maxPoll = 245 * time.Millisecond
)

// wait is LOCK … WAIT: it joins the line of the lock and answers when the lock is this client's, or
// the time is over. patience 0 is without end.
func (l *Locks) wait(ctx context.Context, s Session, id LockID, r lockRequest, patience time.Duration) Reply {
	l.waiters.Add(1)
	defer l.waiters.Add(-1)
	w := newWaiter(r, s.Identity())
	w.joined = time.Now()
	if patience > 0 {
		w.until = w.joined.Add(patience)
	}
	l.mu.Lock()
	q := l.queues[id]
	if q == nil {
		q = &waitQueue{lease: maxPoll}
		l.queues[id] = q
	}
	knows := q.join(w)
	isFirst, foreignTurn := q.first() == w, l.foreign.haveTurn(id, w.joined)
	l.mu.Unlock()

	err, pause := error(nil), notPolled
	switch {
	case isFirst && !foreignTurn: // most likely the lock is free
		pause, err = l.pollOrPause(ctx, s, id, w)
	case isFirst || !knows || r.owner != "":
		if err = l.check(s, id, w); err != nil && l.isTransient(ctx, err) {
			pause, err = l.pollAfter(id, w, err), nil
		}
	}
	queued := err == nil && !l.isGranted(w)
	if queued {
		err = l.waitTurn(ctx, s, id, w, patience, pause)
	}
	return l.waited(ctx, s, id, w, queued, err)
}

// pollOrPause polls. Unless that ends the wait, it returns how long to wait for the next one.
func (l *Locks) pollOrPause(ctx context.Context, s Session, id LockID, w *waiter) (pause time.Duration, err error) {
	remaining, err := l.poll(s, id, w)
	switch {
	case err == nil:
		l.recovered(id)
		return l.pollInterval(id, remaining), nil
	case l.isTransient(ctx, err):
		return l.pollAfter(id, w, err), nil
	}
	l.pollFailed(id, w, err)
	return 0, err
}

// patience is until when w waits for the answer to a question that it asks now: to the end of its
// wait, but long enough for an upstream that is well.
func (w *waiter) patience() time.Time {
	if least := time.Now().Add(maxSilence); !w.until.IsZero() && w.until.Before(least) {
		return least
	}
	return w.until
}

// notPolled is how long to wait for the next poll, to a waiter that has not polled.
const notPolled = time.Duration(-1)

// check finds out at once, for one who isn't first in line, what must not come out only when his
// turn comes: that he may not lock here at all, or that he is the owner already.
func (l *Locks) check(s Session, id LockID, w *waiter) error {
	a, err := l.try(s, id, w, modeCheck)
	if denied := l.rollBack(s, id, w, a, err); denied != nil {
		return denied
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil || a.token == 0:
	case w.state == granted:
		w.supersede(a)
	default:
		w.askedAt, w.renewed, w.before = a.askedAt, a.renewed, a.before
		l.queues[id].grant(w, a.token)
	}
	return err
}

// waitTurn returns when w has been granted the lock, or its time is over, or its client gone, or a
// poll has failed. pause is how long to wait for the next poll.
func (l *Locks) waitTurn(ctx context.Context, s Session, id LockID, w *waiter, patience, pause time.Duration) error {
	var over <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		over = timer.C
	}
	gone := ctx.Done()
	l.notifications.listen(w.as, id.Key)
	slow := l.slowTimer()
	defer slow.stop()
	var next lazyTimer
	defer next.stop()
	if pause != notPolled {
		next.arm(pause)
	}
	for {
		if first, lease := l.position(id, w); first && !next.armed {
			next.arm(l.pollInterval(id, lease))
		}
		timeToPoll := false
		select {
		case <-gone:
			return ErrGone
		case <-over:
			return l.outage(id)
		case <-slow.due():
			l.warnSlow(s, id, w)
			continue
		case <-next.due():
			timeToPoll = true
		case <-w.wake:
		}
		next.armed = false // what was known of the lock has changed
		if granted, err := l.outcome(w); granted || err != nil {
			return err
		}
		if !l.shouldPoll(id, w, timeToPoll) {
			continue
		}
		pause, err := l.pollOrPause(ctx, s, id, w)
		if err != nil || l.isGranted(w) {
			return err
		}
		next.arm(pause)
	}
}

// outcome tells whether w has the lock, or an error if it was to have it and that was taken back.
func (l *Locks) outcome(w *waiter) (won bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.state == granted, w.rejected
}

func (l *Locks) isGranted(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.state == granted
}

// shouldPoll reports whether w is first in line, and it is time to poll or it has been told to.
func (l *Locks) shouldPoll(id LockID, w *waiter, timeToPoll bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.place != nil && l.queues[id].first() == w && (timeToPoll || w.pollNow)
}

// poll tries to take the lock for the first in line, and otherwise returns how long it has to run.
func (l *Locks) poll(s Session, id LockID, w *waiter) (remaining time.Duration, err error) {
	l.mu.Lock()
	how := modeFirst
	if w.polled && !w.pollNow {
		how = modeAgain
	}
	w.pollNow, w.polled = false, true
	l.mu.Unlock()
	w.pollStarted.Store(monotonic.Now())
	a, err := l.try(s, id, w, how)
	w.pollStarted.Store(0)
	if denied := l.rollBack(s, id, w, a, err); denied != nil {
		return 0, denied
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case w.state == granted: // by a release, while this was under way
		w.supersede(a)
		return 0, nil
	case err != nil || a.token == 0:
		return a.remaining, err
	}
	l.queues[id].quota = 0
	l.queues[id].grant(w, a.token)
	w.takenOver, w.renewed, w.before, w.askedAt = a.takenOver, a.renewed, a.before, a.askedAt
	return 0, nil
}

// position tells whether w is first in line, and how long the lock lasts at most that was last
// given out here, if it is known.
func (l *Locks) position(id LockID, w *waiter) (first bool, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[id]
	if w.place == nil || q.first() != w {
		return false, 0
	}
	return true, q.lease
}

// pollInterval is how long the first in line waits before it polls again, when the lock has remaining
// to run.
func (l *Locks) pollInterval(id LockID, remaining time.Duration) time.Duration {
	pause := jitter(minPoll, maxPoll)
	if l.foreignCompete(id) {
		pause = jitter(minForeignPoll, maxForeignPoll)
	}
	// At the expiry itself, and a millisecond later: expired means now >= value on a clock that
	// counts whole ones.
	return min(pause, remaining+time.Millisecond)
}

// offerPatience is how long a waiter whose time is over stays for a release that may be giving it
// the lock, besides the time that replicas have.
const offerPatience = time.Second

// awaitOffer returns when no release is under way that names w: its script's answer decides. It
// doesn't wait for one that hangs, which will find that w has left.
func (l *Locks) awaitOffer(w *waiter) {
	patience := time.NewTimer(offerPatience + l.cfg.ReplicaTimeout)
	defer patience.Stop()
	for l.isOffered(w) {
		select {
		case <-w.wake:
		case <-patience.C:
			return
		}
	}
}

func (l *Locks) isOffered(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.state == offered
}

// waited takes w out of the line and makes its answer. queued says that it was not given the lock
// at once. If it was, a client that has closed its side is answered as by LOCK without WAIT: it may
// have closed only that.
func (l *Locks) waited(ctx context.Context, s Session, id LockID, w *waiter, queued bool, err error) Reply {
	l.awaitOffer(w)
	l.mu.Lock()
	won, unsure := w.state == granted, w.unknownOutcome
	if !won {
		w.state = left
	}
	if err == nil {
		err = w.rejected
	}
	if q := l.queues[id]; q != nil {
		q.leave(w)
		if q.len() == 0 {
			delete(l.queues, id)
			if w.pollNow && !won && (err == nil || err == ErrGone) {
				l.releaseReservation(w.as, id)
			}
		}
	}
	l.mu.Unlock()
	l.observeWaited(w, won, err)

	if !won && unsure {
		l.releaseAbandoned(w.lock(0))
	}
	switch {
	case won && (err == ErrGone || queued && context.Cause(ctx) == ErrGone):
		// It crossed with the hang-up: nobody is there to hold it.
		if !w.before {
			l.releaseAbandoned(w.lock(w.token))
		}
		return errorReply(ErrGone)
	case won:
		return l.acquired(s, w.lockRequest, attempt{
			token: w.token, takenOver: w.takenOver, renewed: w.renewed, before: w.before, askedAt: w.askedAt,
		})
	case err != nil:
		l.failed(ctx, s, w.lock(0), err)
		return errorReply(err)
	}
	return nullReply
}

// rollBack takes back what a poll or a check of w's has found if too few replicas know of it, or if a
// release has given up giving it to w meanwhile. Then w has left: nobody gives it the lock any
// more. It returns the error that w's client is answered, nil if there is nothing to take back.
func (l *Locks) rollBack(s Session, id LockID, w *waiter, a attempt, err error) error {
	missing := err != nil && a.token != 0 && !a.renewed
	l.mu.Lock()
	if missing && w.rejected == nil {
		w.rejected = err
	}
	denied := w.rejected
	if denied != nil {
		w.state = left
	}
	l.mu.Unlock()
	if (denied != nil || err != nil) && a.token != 0 && !a.before {
		l.undo(s, w.lock(a.token))
	}
	return denied
}

// runLock is LOCK … WAIT.
func (l *Locks) runLock(ctx context.Context, s Session, args [][]byte) Reply {
	o, err := parseLock(args[1:], l.cfg.MaxTimeout)
	if err != nil {
		return errorReply(err)
	}
	r := s.Holder().request(string(args[0]), o)
	return l.wait(ctx, s, LockID{s.Identity().DB, r.key}, r, o.wait)
}

// try runs lock.lua once for a waiter. An error may come with a token: unless the connection had it
// before, the caller must undo it.
func (l *Locks) try(s Session, id LockID, w *waiter, how string) (attempt, error) {
	t, err := l.beginTry(id, w.lockRequest, how)
	if err != nil {
		return attempt{askedAt: t.askedAt}, err
	}
	t.Until = w.patience()
	answer, err := s.Eval(&t.Call)
	return l.finishTry(t, answer, err)
}
