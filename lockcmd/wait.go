package lockcmd

import (
	"errors"
	"sync/atomic"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/queue"
	"lockproxy/lockcmd/script"
)

// asks is how a wait asks for its locks: a LOCK's by lock.lua (oneLock), a LOCKALL's by all.lua
// (allLocks).
type asks interface {
	// look follows a wake, or the end of the pause. It polls if it is time to, and otherwise sets
	// t.poll. The wait has Ended with the locks, or t.leave is told why not.
	look(t *turn, paused bool) (Reply, *Step)
	// lastLook is when the wait's time has expired, and no recent poll has shown that others hold
	// the locks. It has t leave with why the locks were not taken, if that is not the reason.
	lastLook(t *turn) (Reply, *Step)
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

// turn is a LOCK … WAIT, LOCKALL … WAIT or ONCE … WAIT that has joined its queues. It is data, and
// alternates between sleep and steps that ask. Only goOn, which finishes sleep, and what follows
// those steps change it, one at a time.
type turn struct {
	*waits
	c        Client
	w        *queue.Wait
	by       asks
	sleep    *Step
	patience time.Duration // how long it may wait; 0 is forever
	phase    turnPhase
	queued   bool  // it was not given its locks at once
	silent   bool  // the client's connection was, or there is none
	woken    bool  // since the last look
	backsOff bool  // the last poll has failed, transiently: nothing is asked until the next is due
	why      error // why it is useless, as sleep was told
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
	asksFirst turnPhase = iota
	inQueue
	leaving // its wait has ended, but for a release that may still give it the locks
	outside // end says how it has left its queues
)

func (l *waits) newTurn(c Client, w *queue.Wait, patience time.Duration) *turn {
	t := &turn{waits: l, c: c, w: w, patience: patience}
	t.sleep = &Step{Asks: Turn{}, Finish: t.goOn}
	w.WakeBy(c.Waker.Wake) // also while it asks for the first time: a release can name it
	return t
}

// begin is what follows when t has joined the queues and asked for the first time, with err. pause
// is the time to the next poll.
func (t *turn) begin(pause time.Duration, err error) (Reply, *Step) {
	if err != nil || t.w.Lead.State().Ended {
		return t.leave(err)
	}
	t.phase, t.queued = inQueue, true
	for _, one := range t.w.Waiters {
		t.seen.waitBegan(one)
		t.listener.Listen(t.w.As, one.Key)
	}
	t.endWatch = t.deadlocks.Watch(t.w)
	if slow := time.Duration(t.seen.slowWait.Load()); slow > 0 {
		t.slow.in(slow)
	}
	if pause != notPolled {
		t.poll.in(pause)
	}
	if t.patience > 0 {
		t.over.in(t.patience)
		if time.Since(t.w.Joined) >= t.patience {
			// To ask once more would take as long again.
			if err, _ := t.w.Outage(time.Now()); err != nil {
				return t.leave(err)
			}
		}
	}
	return t.rest()
}

// rest has t sleep until it is woken, or due.
func (t *turn) rest() (Reply, *Step) {
	due := time.Time{}
	for _, m := range []moment{t.over, t.slow, t.poll} {
		if due.IsZero() || !m.IsZero() && m.Before(due) {
			due = m.Time
		}
	}
	t.sleep.Until = due
	return Reply{}, t.sleep
}

// goOn takes on a turn that sleeps.
func (t *turn) goOn(_ script.Answer, why error) (Reply, *Step) {
	t.why, t.woken = why, t.w.TakeWoken() || t.woken
	if t.phase == inQueue {
		if reply, next := t.stay(); t.phase == inQueue || next != t.sleep {
			return reply, next
		}
	}
	return t.depart()
}

// isGone reports whether the client of a command that waits is disconnected. If the command was
// given its locks at once, a client that has closed its side is answered, as by LOCK without WAIT:
// it may still read.
func (t *turn) isGone() bool { return t.queued && t.why == failure.ErrGone }

// stay takes on a turn that is inQueue.
func (t *turn) stay() (Reply, *Step) {
	at := t.w.Lead.State()
	switch {
	case t.isGone():
		return t.leave(failure.ErrGone)
	case at.Ended, at.Err != nil:
		return t.leave(at.Err)
	case t.over.isDue():
		if err, stale := t.w.Outage(time.Now()); !stale {
			return t.leave(err)
		}
		return t.by.lastLook(t)
	case t.slow.isDue():
		t.slow = moment{}
		t.warnSlow(t.w.Lead)
	}
	if t.backsOff && !t.poll.isDue() {
		return t.rest()
	}
	t.backsOff = false
	return t.by.look(t, t.poll.isDue())
}

// pauseAfter is the time to the next poll behind one that has failed with err, transiently.
func (t *turn) pauseAfter(err error) time.Duration {
	t.backsOff = true
	return t.w.PollAfter(err)
}

// leave ends the wait with err.
func (t *turn) leave(err error) (Reply, *Step) {
	t.phase, t.err, t.slow, t.poll = leaving, err, moment{}, moment{}
	t.over.in(t.offerPatience(t.w.Lead))
	if t.endWatch != nil {
		t.endWatch()
	}
	if t.queued { // its client may be gone by now
		return t.rest()
	}
	return t.depart()
}

// offerPatience is how long a waiter whose time has expired stays for a release that may give it
// the lock. ReplicaTimeout and a round trip to a far upstream are added.
const offerPatience = time.Second

func (l *waits) offerPatience(w *queue.Waiter) time.Duration {
	return offerPatience + l.cfg.ReplicaTimeout + l.Clients.Ways.RoundTrip(w.Key)
}

// until sleeps until done, or until a time, zero is never, and goes on with then.
func (t *turn) until(
	over time.Time, done func(gone bool) bool, then func() (Reply, *Step),
) (Reply, *Step) {
	step := &Step{Asks: Turn{}, Until: over}
	step.Finish = func(_ script.Answer, why error) (Reply, *Step) {
		t.woken = t.w.TakeWoken() || t.woken
		if !done(why == failure.ErrGone) && (over.IsZero() || time.Now().Before(over)) {
			return Reply{}, step
		}
		return then()
	}
	return Reply{}, step
}

// release releases locks that the client must not get, and goes on with then when that is done, or
// takes too long.
func (t *turn) release(list []*held.Lock, then func() (Reply, *Step)) (Reply, *Step) {
	left := &atomic.Int64{}
	left.Store(int64(len(list)))
	for _, lock := range list {
		t.releases.startRelease(lock, func() {
			if left.Add(-1) == 0 {
				t.c.Waker.Wake()
			}
		})
	}
	return t.until(time.Now().Add(t.Clients.Patience()), func(bool) bool { return left.Load() == 0 }, then)
}

// depart takes a turn that leaves out of its queues, once no release is under way that names it: a
// later one finds that it has left.
func (t *turn) depart() (Reply, *Step) {
	at, lead, err := t.w.Lead.State(), t.w.Lead, t.err
	if at.Offered && !t.over.isDue() && t.why != failure.ErrGone {
		return t.rest()
	}
	if stopped, is := err.(failure.StoppedError); is {
		err = stopped.Why
	}
	if lead.Once && at.Has && lead.Handed && err != failure.ErrGone && t.why == nil {
		return t.handedClaim(t, lead)
	}
	return t.departed(err)
}

// departed is what follows when the turn is to end with err.
func (t *turn) departed(err error) (Reply, *Step) {
	w := t.w
	t.phase, t.end = outside, w.End(err)
	won, err := t.end.Won, t.end.Err
	healthy := err == nil || err == failure.ErrGone || failure.IsDeadlock(err) ||
		failure.IsUnblocked(err) // the upstream is
	if healthy || w.Lead.IsAll { // another of its keys may have failed
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
	if !won && t.end.Unknown {
		return t.releaseUnknown()
	}
	return t.reply()
}

// releaseUnknown releases what the turn may have been given without an answer.
func (t *turn) releaseUnknown() (Reply, *Step) {
	list, silent := t.locks(0), failure.SilentError(0)
	twice := func() (Reply, *Step) {
		for _, lock := range list {
			t.releases.releaseTwice(lock, t.w.MayRunUntil())
		}
		return t.reply()
	}
	if failure.IsStopped(t.err) || errors.As(t.end.Err, &silent) { // it would take as long again
		return twice()
	}
	return t.release(list, twice)
}

// requests are what the turn asks for.
func (t *turn) requests() lockRequests { return requestsOf(t.w.Waiters) }

// locks are those of the turn with a token.
func (t *turn) locks(token int64) []*held.Lock { return t.requests().locks(t.w.As, token) }

// reply makes the reply of a turn that is outside.
func (t *turn) reply() (Reply, *Step) {
	a := t.w.Lead.Attempt
	switch {
	case t.end.Found != nil:
		t.seen.counters.OnceShared.Add(1)
		return valueReply(resp.Bulk(*t.end.Found)), nil
	case t.end.Won && (t.isGone() || t.end.Err == failure.ErrGone):
		// The client was disconnected while the locks were on their way.
		var list []*held.Lock
		if !a.Before {
			list = t.locks(a.Token)
		}
		return t.release(list, func() (Reply, *Step) { return errorReply(failure.ErrGone), nil })
	case t.end.Won:
		if t.queued {
			a.Waited = time.Since(t.w.Joined)
		}
		return t.acquired(t.c.Holder, t.locks(a.Token), a), nil
	case t.end.Err != nil:
		return t.through(t.failed(t.c, t.requests(), t.by.toUndo(), t.end.Err))
	}
	return valueReply(resp.Null), nil
}
