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
func (l *Locks) wait(ctx context.Context, s Session, at lineKey, r request, patience time.Duration) Reply {
	l.waiters.Add(1)
	defer l.waiters.Add(-1)
	w := newWaiter(r, s.Identity())
	w.joined = time.Now()
	if patience > 0 {
		w.until = w.joined.Add(patience)
	}
	l.mu.Lock()
	ln := l.lines[at]
	if ln == nil {
		ln = &line{lease: maxPoll}
		l.lines[at] = ln
	}
	knows := ln.join(w)
	isFirst, foreignTurn := ln.first() == w, l.foreign.haveTurn(at, w.joined)
	l.mu.Unlock()

	err, pause := error(nil), unknown
	switch {
	case isFirst && !foreignTurn: // most likely the lock is free
		pause, err = l.pollOrPause(ctx, s, at, w)
	case isFirst || !knows || r.owner != "":
		if err = l.check(s, at, w); err != nil && l.passing(ctx, err) {
			pause, err = l.pauseFor(at, w, err), nil
		}
	}
	queued := err == nil && !l.isGranted(w)
	if queued {
		err = l.waitTurn(ctx, s, at, w, patience, pause)
	}
	return l.waited(ctx, s, at, w, queued, err)
}

// pollOrPause polls. Unless that ends the wait, it returns how long to wait for the next one.
func (l *Locks) pollOrPause(ctx context.Context, s Session, at lineKey, w *waiter) (pause time.Duration, err error) {
	remaining, err := l.poll(s, at, w)
	switch {
	case err == nil:
		l.recovered(at)
		return l.untilPoll(at, remaining), nil
	case l.passing(ctx, err):
		return l.pauseFor(at, w, err), nil
	}
	l.pollFailed(at, w, err)
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

// unknown is how long to wait for the next poll, to a waiter that has not polled.
const unknown = time.Duration(-1)

// check finds out at once, for one who isn't first in line, what must not come out only when his
// turn comes: that he may not lock here at all, or that he is the owner already.
func (l *Locks) check(s Session, at lineKey, w *waiter) error {
	a, err := l.try(s, at, w, asCheck)
	if denied := l.unmade(s, at, w, a, err); denied != nil {
		return denied
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil || a.token == 0:
	case w.state == granted:
		w.supersede(a)
	default:
		w.asked, w.renewed, w.before = a.asked, a.renewed, a.before
		l.lines[at].grant(w, a.token)
	}
	return err
}

// waitTurn returns when w has been granted the lock, or its time is over, or its client gone, or a
// poll has failed. pause is how long to wait for the next poll.
func (l *Locks) waitTurn(ctx context.Context, s Session, at lineKey, w *waiter, patience, pause time.Duration) error {
	var over <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		over = timer.C
	}
	gone := ctx.Done()
	l.wakes.listen(w.as, at.key)
	slow := l.slowTimer()
	defer slow.stop()
	var next lazyTimer
	defer next.stop()
	if pause != unknown {
		next.arm(pause)
	}
	for {
		if first, lease := l.position(at, w); first && !next.armed {
			next.arm(l.untilPoll(at, lease))
		}
		timeToPoll := false
		select {
		case <-gone:
			return ErrGone
		case <-over:
			return l.outage(at)
		case <-slow.due():
			l.warnSlow(s, at, w)
			continue
		case <-next.due():
			timeToPoll = true
		case <-w.wake:
		}
		next.armed = false // what was known of the lock has changed
		if granted, err := l.outcome(w); granted || err != nil {
			return err
		}
		if !l.shouldPoll(at, w, timeToPoll) {
			continue
		}
		pause, err := l.pollOrPause(ctx, s, at, w)
		if err != nil || l.isGranted(w) {
			return err
		}
		next.arm(pause)
	}
}

// lazyTimer is a timer that may never be needed: only the first in line polls, the others wait to
// be woken. Its zero value isn't armed.
type lazyTimer struct {
	*time.Timer // nil until it is armed
	armed       bool
}

// due is nil, and so never ready, until the timer is armed.
func (t *lazyTimer) due() <-chan time.Time {
	if t.Timer == nil {
		return nil
	}
	return t.C
}

func (t *lazyTimer) arm(d time.Duration) {
	if t.Timer == nil {
		t.Timer = time.NewTimer(d)
	} else {
		t.Reset(d)
	}
	t.armed = true
}

// stop ends it for good.
func (t *lazyTimer) stop() {
	if t.Timer != nil {
		t.Stop()
	}
}

// outcome tells whether w has the lock, or an error if it was to have it and that was taken back.
func (l *Locks) outcome(w *waiter) (won bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.state == granted, w.denied
}

func (l *Locks) isGranted(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.state == granted
}

// shouldPoll reports whether w is first in line, and it is time to poll or it has been told to.
func (l *Locks) shouldPoll(at lineKey, w *waiter, timeToPoll bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return w.place != nil && l.lines[at].first() == w && (timeToPoll || w.poll)
}

// poll tries to take the lock for the first in line, and otherwise returns how long it has to run.
func (l *Locks) poll(s Session, at lineKey, w *waiter) (remaining time.Duration, err error) {
	l.mu.Lock()
	how := asFirst
	if w.polled && !w.poll {
		how = asAgain
	}
	w.poll, w.polled = false, true
	l.mu.Unlock()
	w.asks.Store(monotonic.Now())
	a, err := l.try(s, at, w, how)
	w.asks.Store(0)
	if denied := l.unmade(s, at, w, a, err); denied != nil {
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
	l.lines[at].turn = 0
	l.lines[at].grant(w, a.token)
	w.takenOver, w.renewed, w.before, w.asked = a.takenOver, a.renewed, a.before, a.asked
	return 0, nil
}

// position tells whether w is first in line, and how long the lock lasts at most that was last
// given out here, if it is known.
func (l *Locks) position(at lineKey, w *waiter) (first bool, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lines[at]
	if w.place == nil || ln.first() != w {
		return false, 0
	}
	return true, ln.lease
}

// untilPoll is how long the first in line waits before it polls again, when the lock has remaining
// to run.
func (l *Locks) untilPoll(at lineKey, remaining time.Duration) time.Duration {
	pause := jitter(minPoll, maxPoll)
	if l.foreignCompete(at) {
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
func (l *Locks) waited(ctx context.Context, s Session, at lineKey, w *waiter, queued bool, err error) Reply {
	l.awaitOffer(w)
	l.mu.Lock()
	won, unsure := w.state == granted, w.unsure
	if !won {
		w.state = left
	}
	if err == nil {
		err = w.denied
	}
	if ln := l.lines[at]; ln != nil {
		ln.leave(w)
		if ln.len() == 0 {
			delete(l.lines, at)
			if w.poll && !won && (err == nil || err == ErrGone) {
				l.giveBack(w.as, at)
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
		return l.acquired(s, w.request, attempt{
			token: w.token, takenOver: w.takenOver, renewed: w.renewed, before: w.before, asked: w.asked,
		})
	case err != nil:
		l.failed(ctx, s, w.lock(0), err)
		return errorReply(err)
	}
	return nullReply
}
