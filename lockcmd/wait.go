package lockcmd

import (
	"context"
	"errors"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/chain"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// asks is how a wait asks for its locks: a LOCK's by lock.lua (oneLock), a LOCKALL's by all.lua
// (allLocks).
type asks interface {
	// look follows a wake, or the end of the pause. It polls if it is time to, which it leaves to a
	// goroutine in a loop, and sets t.poll. The wait has Ended with the locks or with an error.
	look(t *turn, paused, inLoop bool) (chain.Progress, error)
	// lastLook is when the wait's time has expired. Its error is why the locks were not taken, if
	// that is not because others hold them.
	lastLook() error
	// toUndo is what the last poll has taken if it came with an error.
	toUndo() script.Attempt
}

// moment is a time; zero is never.
type moment struct{ time.Time }

func (m *moment) in(d time.Duration) { m.Time = time.Now().Add(d) }

// sooner is in, unless it is sooner already.
func (m *moment) sooner(d time.Duration) {
	if m.IsZero() || time.Until(m.Time) > d {
		m.in(d)
	}
}

func (m *moment) isDue() bool { return !m.IsZero() && !time.Now().Before(m.Time) }

// notPolled is the pause of a waiter that has not polled, and need not until it is woken.
const notPolled = time.Duration(-1)

// turn is a LOCK … WAIT, LOCKALL … WAIT or ONCE … WAIT that has joined its queues. It is data. Only
// Go changes it, which its session calls.
type turn struct {
	*waits
	s        session
	w        *queue.Wait
	by       asks
	phase    turnPhase
	queued   bool  // it was not given its locks at once
	woken    bool  // since the last look
	err      error // why it leaves without its locks
	end      queue.Departure
	endWatch func() // of Deadlocks

	over moment // when its time has expired, or that to leave: see offerPatience
	slow moment // when it is logged
	poll moment // when it polls, unless it is woken before
}

// turnPhase is how far a turn is.
type turnPhase uint8

const (
	inQueue turnPhase = iota
	leaving           // its wait has ended, but for a release that may still give it the locks
	outside           // end says how it has left its queues
)

// beginTurn begins what follows when w has joined the queues and asked for the first time, with err.
// It lasts for patience, 0 is forever. pause is the time to the next poll.
func (l *waits) beginTurn(
	s session, w *queue.Wait, by asks, patience, pause time.Duration, wake func(), err error,
) *turn {
	t := &turn{waits: l, s: s, w: w, by: by}
	w.WakeBy(wake)
	if err != nil || w.Lead.State().Ended {
		t.leave(err)
		return t
	}
	for _, one := range w.Waiters {
		l.seen.waitBegan(one)
		l.notifications.Listen(w.As, one.Key)
	}
	t.queued, t.endWatch = true, l.deadlocks.Watch(w)
	if slow := time.Duration(l.seen.slowWait.Load()); slow > 0 {
		t.slow.in(slow)
	}
	if pause != notPolled {
		t.poll.in(pause)
	}
	if patience > 0 {
		t.over.in(patience)
		if time.Since(w.Joined) >= patience {
			// To ask once more would take as long again.
			if err, _ := w.Outage(time.Now()); err != nil {
				t.leave(err)
			}
		}
	}
	return t
}

// Due implements chain.Turn.
func (t *turn) Due() (due time.Time) {
	for _, m := range []moment{t.over, t.slow, t.poll} {
		if due.IsZero() || !m.IsZero() && m.Before(due) {
			due = m.Time
		}
	}
	return due
}

// Go implements chain.Turn.
func (t *turn) Go(ctx context.Context, inLoop bool) (Reply, chain.Progress) {
	gone := t.queued && context.Cause(ctx) == failure.ErrGone
	if t.phase == inQueue {
		if progress := t.stay(gone, inLoop); progress != chain.Ended {
			return Reply{}, progress
		}
		gone = context.Cause(ctx) == failure.ErrGone
	}
	if t.phase == leaving {
		at := t.w.Lead.State()
		handed := t.w.Lead.Once && at.Has && t.w.Lead.WasHanded()
		switch {
		case at.Offered && !t.over.isDue() && context.Cause(ctx) != failure.ErrGone:
			return Reply{}, chain.Sleeps
		case inLoop && (gone || t.err != nil || !at.Ended || handed):
			return Reply{}, chain.Asks
		}
		t.depart(ctx)
	}
	if inLoop && !t.end.Won && (t.end.Found == nil || t.end.Unknown) {
		return Reply{}, chain.Asks
	}
	return t.reply(gone), chain.Ended
}

// stay takes on a turn that is inQueue. Ended says that it leaves.
func (t *turn) stay(gone, inLoop bool) chain.Progress {
	t.woken = t.w.TakeWoken() || t.woken
	at := t.w.Lead.State()
	switch {
	case gone:
		return t.leave(failure.ErrGone)
	case at.Ended, at.Err != nil:
		return t.leave(at.Err)
	case t.over.isDue() && inLoop:
		return chain.Asks
	case t.over.isDue():
		return t.leave(t.by.lastLook())
	case t.slow.isDue():
		t.slow = moment{}
		t.warnSlow(t.w.Lead)
	}
	progress, err := t.by.look(t, t.poll.isDue(), inLoop)
	switch progress {
	case chain.Ended:
		return t.leave(err)
	case chain.Sleeps:
		t.woken = false
	}
	return progress
}

// leave ends the wait with err.
func (t *turn) leave(err error) chain.Progress {
	t.phase, t.err, t.slow, t.poll = leaving, err, moment{}, moment{}
	t.over.in(t.offerPatience(t.w.Lead))
	if t.endWatch != nil {
		t.endWatch()
	}
	return chain.Ended
}

// offerPatience is how long a waiter whose time has expired stays for a release that may give it
// the lock. ReplicaTimeout and a round trip to a far upstream are added.
const offerPatience = time.Second

func (l *waits) offerPatience(w *queue.Waiter) time.Duration {
	return offerPatience + l.cfg.ReplicaTimeout + l.Clients.Ways.RoundTrip(w.Key)
}

// awaitOffer waits until no release that names w is under way, or for offerPatience: a later one
// finds that w has left.
func (l *waits) awaitOffer(w *queue.Waiter) {
	loopguard.MayWait()
	ended := w.OfferEnded()
	if ended == nil {
		return
	}
	patience := time.NewTimer(l.offerPatience(w))
	defer patience.Stop()
	select {
	case <-ended:
	case <-patience.C:
	}
}

// depart takes a turn that leaves out of its queues. If it was given its locks at once, a client
// that has closed its side is answered, as by LOCK without WAIT: it may still read.
func (t *turn) depart(ctx context.Context) {
	w, err := t.w, t.err
	if stopped, is := err.(failure.StoppedError); is {
		err = stopped.Why
	}
	if w.Lead.Once && err != failure.ErrGone && context.Cause(ctx) == nil {
		err = t.handedClaim(t.s, w.Lead, err)
	}
	t.phase, t.end = outside, w.End(err)
	won, err := t.end.Won, t.end.Err
	healthy := err == nil || err == failure.ErrGone || failure.IsDeadlock(err) ||
		failure.IsUnblocked(err) // the upstream is
	if healthy || w.Lead.OfLockAll() { // another of its keys may have failed
		for _, one := range t.end.Missed {
			t.releases.waitsNoMore(w.As, one.ID(), one.PollNow)
		}
	}
	if t.queued {
		for _, one := range w.Waiters {
			t.seen.waitEnded(one, won || t.end.Found != nil)
		}
	}
	t.seen.observeWaited(w.Lead, won || t.end.Found != nil, err)
}

// releaseUnknown releases what the turn may have been given without an answer.
func (t *turn) releaseUnknown() {
	list, silent := t.locks(0), failure.SilentError(0)
	if !failure.IsStopped(t.err) && !errors.As(t.end.Err, &silent) { // or it takes as long again
		t.releases.releaseAbandoned(list...)
	}
	for _, lock := range list {
		t.releases.releaseTwice(lock, t.w.MayRunUntil())
	}
}

// locks are those of the turn with a token.
func (t *turn) locks(token int64) []*held.Lock {
	return lockRequests(requestsOf(t.w.Waiters)).locks(t.w.As, token)
}

// reply makes the reply of a turn that is outside.
func (t *turn) reply(gone bool) Reply {
	if !t.end.Won && t.end.Unknown {
		t.releaseUnknown()
	}
	a := t.w.Lead.Attempt
	switch {
	case t.end.Found != nil:
		t.seen.counters.onceShared.Add(1)
		return chain.Bulk(*t.end.Found)
	case t.end.Won && (gone || t.end.Err == failure.ErrGone):
		// The client was disconnected while the locks were on their way.
		if !a.Before {
			t.releases.releaseAbandoned(t.locks(a.Token)...)
		}
		return chain.Failed(failure.ErrGone)
	case t.end.Won:
		if t.queued {
			a.Waited = time.Since(t.w.Joined)
		}
		return t.acquired(t.s.Holder, t.locks(a.Token), a)
	case t.end.Err != nil:
		rs := lockRequests(requestsOf(t.w.Waiters))
		reply, next := t.failed(t.s.Client, rs, t.by.toUndo(), t.end.Err)
		return chain.Drive(t.s, reply, next)
	}
	return chain.Null
}
