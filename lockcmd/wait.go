package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/hints"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/search"
)

// waits waits for locks.
type waits struct {
	*locking
	notifications *hints.Notifications
	tracking      *hints.Tracking
	deadlocks     *search.Deadlocks
}

// wait is LOCK … WAIT for patience; 0 is forever. It joins the lock's queue, and replies when the
// client has the lock or its time has expired.
func (l *waits) wait(
	ctx context.Context, s session, r script.Request, patience time.Duration,
) Reply {
	w, at := l.queues.Join(r, s.As, patience, time.Now())
	err, pause := error(nil), notPolled
	switch {
	case at.First && !at.ForeignTurn: // the lock is probably free
		pause, err = l.pollOrPause(s, w)
	case at.First || !at.Permitted || r.Owner != "":
		if err = l.check(s, w); err != nil && l.isTransient(err) {
			pause, err = w.PollAfter(err), nil
		}
	}
	queued := err == nil && !w.State().Ended
	if queued {
		l.seen.waitBegan(w)
		endWatch := l.deadlocks.Watch(w.Wait)
		err = l.waitTurn(ctx, s, w, patience, pause)
		endWatch()
	}
	return l.endWait(ctx, s, w, queued, err)
}

// session is a Client whose command waits in a goroutine, which asks for scripts.
type session struct {
	Client
	chain.Upstream
}

// notPolled is the pause of a waiter that has not polled.
const notPolled = time.Duration(-1)

// waitTurn returns when w has been granted the lock, its time has expired, its client is
// disconnected, or a poll has failed. pause is the time to the next poll.
func (l *waits) waitTurn(
	ctx context.Context, s session, w *queue.Waiter, patience, pause time.Duration,
) error {
	loopguard.MayWait()
	l.notifications.Listen(w.As, w.Key)
	over := timerAfter(patience)
	defer over.stop()
	slow := l.seen.slowTimer()
	defer slow.stop()
	var next lazyTimer
	defer next.stop()
	if pause != notPolled {
		next.arm(pause)
	}
	woken := false
	for {
		if at := w.State(); at.First && (woken || !next.armed) {
			next.armSooner(l.pollInterval(w, at.Lease))
		}
		timeToPoll := false
		woken = false
		select {
		case <-ctx.Done():
			return failure.ErrGone
		case <-over.due():
			err, stale := w.Outage(time.Now())
			if stale {
				return l.check(s, w)
			}
			return err
		case <-slow.due():
			if err := l.warnSlow(s, w); err != nil {
				return err
			}
			continue
		case <-next.due():
			timeToPoll, next.armed = true, false
		case <-w.Woken():
			woken = true
		}
		if at := w.State(); at.Ended || at.Err != nil {
			return l.handedClaim(s, w, at.Err)
		}
		if w.TakeOwnerHolds() {
			err := l.check(s, w)
			if err != nil && !l.isTransient(err) || w.State().Ended {
				return err
			}
		}
		if at := w.State(); !at.First || !timeToPoll && !at.PollNow {
			continue
		}
		pause, err := l.pollOrPause(s, w)
		if err != nil || w.State().Ended {
			return err
		}
		l.seen.findHolder(w)
		next.arm(pause)
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

// endWait takes w out of the queue and makes its reply. queued says that it was not given the lock
// at once. If it was, a client that has closed its side is answered, as by LOCK without WAIT: it
// may still read.
func (l *waits) endWait(
	ctx context.Context, s session, w *queue.Waiter, queued bool, err error,
) Reply {
	l.awaitOffer(w)
	end := w.End(err)
	won, err := end.Won, end.Err
	healthy := err == nil || err == failure.ErrGone || failure.IsDeadlock(err) ||
		failure.IsUnblocked(err) // the upstream is
	if healthy {
		l.releases.waitNoMore(end.Missed)
	}
	if queued {
		l.seen.waitEnded(w, won)
	}
	l.seen.observeWaited(w, won || end.Found != nil, err)

	if !won && end.Unknown {
		l.releases.releaseAbandoned(lockOf(w, 0))
	}
	switch {
	case end.Found != nil:
		l.seen.counters.onceShared.Add(1)
		return chain.Bulk(*end.Found)
	case won && (err == failure.ErrGone || queued && context.Cause(ctx) == failure.ErrGone):
		// The client was disconnected while the lock was on its way.
		if !w.Before {
			l.releases.releaseAbandoned(lockOf(w, w.Token))
		}
		return chain.Failed(failure.ErrGone)
	case won:
		if queued {
			w.Waited = time.Since(w.Joined)
		}
		return l.acquired(s.Client, lockRequests{w.Request}, w.Attempt)
	case err != nil:
		l.releases.failed(s.Holder, lockOf(w, 0), err)
		return waitFailed(err)
	}
	return chain.Null
}

// lazyTimer is a timer that is made when it is armed. Its zero value is not armed.
type lazyTimer struct {
	*time.Timer // nil until it is armed
	armed       bool
	at          time.Time // when it is due, if it is armed
}

// timerAfter is a timer that is due after d, or never if d is 0.
func timerAfter(d time.Duration) (t lazyTimer) {
	if d > 0 {
		t.arm(d)
	}
	return t
}

// due is nil, so never ready, until the timer is armed.
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
	t.armed, t.at = true, time.Now().Add(d)
}

// armSooner arms it, unless it is due sooner.
func (t *lazyTimer) armSooner(d time.Duration) {
	if !t.armed || time.Until(t.at) > d {
		t.arm(d)
	}
}

// stop ends it for good.
func (t *lazyTimer) stop() {
	if t.Timer != nil {
		t.Stop()
	}
}
