package lockcmd

import (
	"context"
	"time"
)

// wait is LOCK … WAIT for a time, 0 without end. It joins the queue of the lock, and replies when
// the lock is this client's or the time is over.
func (l *Locks) wait(ctx context.Context, s Session, r lockRequest, patience time.Duration) Reply {
	l.waiters.Add(1)
	defer l.waiters.Add(-1)
	w := newWaiter(r, s.Identity())
	id := w.id()
	w.joined = time.Now()
	if patience > 0 {
		w.until = w.joined.Add(patience)
	}
	l.mu.Lock()
	q := l.queues[id]
	if q == nil {
		q = &waitQueue{lease: maxPoll}
		l.queues[id] = q
		l.waitedKeys.Add(id.Key, 1)
	}
	permitted := q.join(w)
	isFirst, foreignTurn := q.first() == w, l.foreign.haveTurn(id, w.joined)
	l.mu.Unlock()

	err, pause := error(nil), notPolled
	switch {
	case isFirst && !foreignTurn: // most likely the lock is free
		pause, err = l.pollOrPause(ctx, s, w)
	case isFirst || !permitted || r.owner != "":
		if err = l.check(s, w); err != nil && l.isTransient(ctx, err) {
			pause, err = l.pollAfter(w, err), nil
		}
	}
	queued := err == nil && !l.isGranted(w)
	if queued {
		l.waitBegan(w)
		err = l.waitTurn(ctx, s, w, patience, pause)
		l.waitEnded(w)
	}
	return l.endWait(ctx, s, w, queued, err)
}

// notPolled stands for the time to the next poll of a waiter that has not polled.
const notPolled = time.Duration(-1)

// waitTurn returns when w has been granted the lock, its time is over, its client has gone, or a
// poll has failed. pause is the time to the next poll.
func (l *Locks) waitTurn(
	ctx context.Context, s Session, w *waiter, patience, pause time.Duration,
) error {
	id := w.id()
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
		if first, lease := l.position(w); first && !next.armed {
			next.arm(l.pollInterval(w, lease))
		}
		timeToPoll := false
		select {
		case <-gone:
			return ErrGone
		case <-over:
			return l.outage(id)
		case <-slow.due():
			l.warnSlow(s, w)
			continue
		case <-next.due():
			timeToPoll = true
		case <-w.wake:
		}
		next.armed = false // what was known of the lock has changed
		if granted, err := l.outcome(w); granted || err != nil {
			return err
		}
		if !l.shouldPoll(w, timeToPoll) {
			continue
		}
		pause, err := l.pollOrPause(ctx, s, w)
		if err != nil || l.isGranted(w) {
			return err
		}
		l.findHolder(w)
		next.arm(pause)
	}
}

// outcome reports whether w has the lock. It fails if w was given it and that was taken back.
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

// shouldPoll reports whether w is first, and is to poll now.
func (l *Locks) shouldPoll(w *waiter, timeToPoll bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.place != nil && l.queues[w.id()].first() == w && (timeToPoll || w.pollNow)
}

// position reports whether w is first, and then the lease that was last granted here.
func (l *Locks) position(w *waiter) (first bool, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[w.id()]
	if w.place == nil || q.first() != w {
		return false, 0
	}
	return true, q.lease
}

// offerPatience is how long a waiter whose time is over stays for a release that may give it the
// lock. The time for replicas comes on top.
const offerPatience = time.Second

// awaitOffer returns when no release is under way that names w, or after offerPatience: such a
// release finds that w has left.
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

// endWait takes w out of the queue and makes its reply. queued says that it was not given the lock
// at once. If it was, a client that has closed its side is answered as by LOCK without WAIT: it may
// have closed only that side.
func (l *Locks) endWait(ctx context.Context, s Session, w *waiter, queued bool, err error) Reply {
	id := w.id()
	l.awaitOffer(w)
	l.mu.Lock()
	won, unknown := w.state == granted, w.unknownOutcome
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
			l.waitedKeys.Add(id.Key, -1)
			if w.pollNow && !won && (err == nil || err == ErrGone) {
				l.releaseReservation(w.as, id)
			}
		}
	}
	l.mu.Unlock()
	l.observeWaited(w, won, err)

	if !won && unknown {
		l.releaseAbandoned(w.lock(0))
	}
	switch {
	case won && (err == ErrGone || queued && context.Cause(ctx) == ErrGone):
		// The client went while the lock was on its way.
		if !w.before {
			l.releaseAbandoned(w.lock(w.token))
		}
		return errorReply(ErrGone)
	case won:
		if queued {
			w.waited = time.Since(w.joined)
		}
		return l.acquired(s, w.lockRequest, w.attempt)
	case err != nil:
		l.failed(ctx, s, w.lock(0), err)
		return errorReply(err)
	}
	return nullReply
}

// runLock is LOCK … WAIT.
func (l *Locks) runLock(ctx context.Context, s Session, args [][]byte) Reply {
	o, err := parseLock(args[1:], l.cfg.MaxTimeout)
	if err != nil {
		return errorReply(err)
	}
	r := s.Holder().request(string(args[0]), o)
	return l.wait(ctx, s, r, o.wait)
}
