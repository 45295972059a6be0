package lockcmd

import (
	"context"
	"errors"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// asks is how a wait asks for its locks: a LOCK's by lock.lua (oneLock), a LOCKALL's by all.lua
// (allLocks).
type asks interface {
	// look follows a wake, or the end of the pause. It polls if it is time to, and sets when that
	// is again. ended says that the wait has, with the locks or with an error.
	look(next *lazyTimer, paused, woken bool) (ended bool, err error)
	// lastLook is when the wait's time has expired. Its error is why the locks were not taken, if
	// that is not because others hold them.
	lastLook() error
	// toUndo is what the last poll has taken if it came with an error.
	toUndo() script.Attempt
}

// notPolled is the pause of a waiter that has not polled, and need not until it is woken.
const notPolled = time.Duration(-1)

// await is LOCK … WAIT and LOCKALL … WAIT for patience, 0 is forever, from when they have joined
// the queues and asked for the first time, with err. It replies when the client has the locks or
// its time has expired. pause is the time to the next poll.
func (l *waits) await(
	ctx context.Context, s session, w *queue.Wait, by asks, patience, pause time.Duration, err error,
) Reply {
	queued := err == nil && !w.Lead.State().Ended
	if queued {
		for _, one := range w.Waiters {
			l.seen.waitBegan(one)
			l.notifications.Listen(w.As, one.Key)
		}
		endWatch := l.deadlocks.Watch(w)
		err = l.waitTurn(ctx, s, w, by, patience, pause)
		endWatch()
	}
	return l.endWait(ctx, s, w, by, queued, err)
}

// waitTurn returns when w has been granted its locks, its time has expired, its client is
// disconnected, or a poll has failed.
func (l *waits) waitTurn(
	ctx context.Context, s session, w *queue.Wait, by asks, patience, pause time.Duration,
) error {
	loopguard.MayWait()
	if patience > 0 && time.Since(w.Joined) >= patience {
		// To ask once more would take as long again.
		if err, _ := w.Outage(time.Now()); err != nil {
			return err
		}
	}
	over := timerAfter(patience)
	defer over.stop()
	slow := l.seen.slowTimer()
	defer slow.stop()
	var next lazyTimer
	defer next.stop()
	if pause != notPolled {
		next.arm(pause)
	}
	for {
		paused, woken := false, false
		select {
		case <-ctx.Done():
			return failure.ErrGone
		case <-over.due():
			return by.lastLook()
		case <-slow.due():
			l.warnSlow(w.Lead)
			continue
		case <-next.due():
			paused, next.armed = true, false
		case <-w.Woken():
			woken = true
		}
		if ended, err := by.look(&next, paused, woken); ended {
			return err
		}
	}
}

// offerPatience is how long a waiter whose time has expired stays for a release that may give it
// the lock. ReplicaTimeout and a round trip to a far upstream are added.
const offerPatience = time.Second

// awaitOffer waits until no release that names w is under way, or for offerPatience: a later one
// finds that w has left.
func (l *waits) awaitOffer(w *queue.Waiter) {
	loopguard.MayWait()
	patience := time.NewTimer(offerPatience + l.cfg.ReplicaTimeout +
		l.Clients.Ways.RoundTrip(w.Key))
	defer patience.Stop()
	for w.State().Offered {
		select {
		case <-w.Woken():
		case <-patience.C:
			return
		}
	}
}

// endWait takes w out of its queues and makes its reply. queued says that it was not given the
// locks at once. If it was, a client that has closed its side is answered, as by LOCK without WAIT:
// it may still read.
func (l *waits) endWait(
	ctx context.Context, s session, w *queue.Wait, by asks, queued bool, err error,
) Reply {
	stopped, isStopped := err.(failure.StoppedError)
	if isStopped {
		err = stopped.Why
	}
	if err != failure.ErrGone { // what a client that is gone is given later is released
		l.awaitOffer(w.Lead)
	}
	if w.Lead.Once && err != failure.ErrGone && context.Cause(ctx) == nil {
		err = l.handedClaim(s, w.Lead, err)
	}
	end := w.End(err)
	won, err := end.Won, end.Err
	healthy := err == nil || err == failure.ErrGone || failure.IsDeadlock(err) ||
		failure.IsUnblocked(err) // the upstream is
	if healthy || w.Lead.OfLockAll() { // another of its keys may have failed
		for _, one := range end.Missed {
			l.releases.waitsNoMore(w.As, one.ID(), one.PollNow)
		}
	}
	if queued {
		for _, one := range w.Waiters {
			l.seen.waitEnded(one, won || end.Found != nil)
		}
	}
	l.seen.observeWaited(w.Lead, won || end.Found != nil, err)

	rs, a := lockRequests(requestsOf(w.Waiters)), w.Lead.Attempt
	if !won {
		a.Token = 0
	}
	list := rs.locks(w.As, a.Token)
	if !won && end.Unknown {
		silent := failure.SilentError(0)
		if !isStopped && !errors.As(err, &silent) { // or it takes as long again
			l.releases.releaseAbandoned(list...)
		}
		for _, lock := range list {
			l.releases.releaseTwice(lock, w.MayRunUntil())
		}
	}
	switch {
	case end.Found != nil:
		l.seen.counters.onceShared.Add(1)
		return chain.Bulk(*end.Found)
	case won && (err == failure.ErrGone || queued && context.Cause(ctx) == failure.ErrGone):
		// The client was disconnected while the locks were on their way.
		if !a.Before {
			l.releases.releaseAbandoned(list...)
		}
		return chain.Failed(failure.ErrGone)
	case won:
		if queued {
			a.Waited = time.Since(w.Joined)
		}
		return l.acquired(s.Holder, list, a)
	case err != nil:
		reply, next := l.failed(s.Client, rs, by.toUndo(), err)
		return chain.Drive(s, reply, next)
	}
	return chain.Null
}
