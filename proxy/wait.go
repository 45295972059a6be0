package proxy

// How a session waits: for an answer of the upstream, for other clients, or until a time. If a loop
// reads the client the session is parked meanwhile, and the loop calls Ready. Otherwise the
// session's goroutine waits in one place, where it reads on: so it sees that the client closes, and
// when. Whatever else it waits for interrupts that.

import (
	"sync"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/failure"
	"lockproxy/passthrough"
)

// waker wakes a session that waits.
type waker struct {
	timer *time.Timer // nil until it is needed
	at    time.Time   // when it fires, or has fired

	mu      sync.Mutex
	changed sync.Cond // of mu: woken has been set
	woken   bool      // guarded by mu; wake was called since the goroutine has last waited
	reads   bool      // guarded by mu; the goroutine waits in a read of its client
}

// wake has the session's goroutine look again at what it waits for. It can be called from anywhere,
// and with mutexes held.
func (x *exchange) wake() {
	w := &x.waker
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken = true; w.reads {
		x.client.interruptRead()
	}
	w.changed.Signal()
}

// Wake implements the Waker of lockcmd.Client.
func (x *exchange) Wake() {
	x.wake()
	x.client.reg.Post()
}

// leastPause keeps a session from being woken all the time that cannot do what it is due for.
const leastPause = time.Millisecond

// wakeAt wakes the session at a time, if not sooner. Zero is never.
func (x *exchange) wakeAt(due time.Time) {
	now := time.Now()
	if w := &x.waker; !due.IsZero() && (!w.at.After(now) || due.Before(w.at)) {
		pause := due.Sub(now)
		if pause <= 0 {
			pause = leastPause
		}
		if w.at = now.Add(pause); w.timer == nil {
			w.timer = time.AfterFunc(pause, x.Wake)
		} else {
			w.timer.Reset(pause)
		}
	}
}

// stop has nothing woken, and keeps nothing for that.
func (w *waker) stop() {
	if w.timer != nil {
		w.timer.Stop()
		w.at = time.Time{}
	}
}

// hangupPoll is how often a goroutine that has no room to read checks whether its client has
// closed.
const hangupPoll = 50 * time.Millisecond

// wait returns when the session is woken, or more has come from the client, or its end; also for
// nothing. Requests that refer to the buffer stay valid.
func (x *exchange) wait() {
	loopguard.MayWait()
	in, w := x.in, &x.waker
	if in.readErr == nil && in.hasRoom() {
		if w.startReading(x.client) {
			n, err := in.client.from.Read(in.buf[in.end:])
			w.stopReading(x.client)
			if isTimeout(err) {
				err = nil
			}
			if n > 0 || err != nil {
				in.filled(n, err)
			}
		}
		return
	}
	if in.readErr == nil {
		x.wakeAt(time.Now().Add(hangupPoll))
	}
	w.await()
	if in.readErr == nil && hungUp(x.client.control) {
		in.hungUp = true
		in.ended()
	}
}

// startReading reports false if the goroutine must look again instead.
func (w *waker) startReading(c *client) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken {
		w.woken = false
		return false
	}
	c.SetReadDeadline(time.Time{})
	w.reads = true
	return true
}

func (w *waker) stopReading(c *client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads, w.woken = false, false
	c.SetReadDeadline(time.Time{})
	if c.drains() { // drain may have interrupted what is read next
		c.interruptRead()
	}
}

// await returns once wake has been called.
func (w *waker) await() {
	loopguard.MayWait()
	w.mu.Lock()
	defer w.mu.Unlock()
	for !w.woken {
		w.changed.Wait()
	}
	w.woken = false
}

// await returns when the answer has arrived. If the client closes, so does its connection to the
// upstream, and the answer is a failure.
func (x *exchange) await(answer *passthrough.Answer) { x.awaitUntil(answer, time.Time{}) }

// awaitUntil is await that gives up at a time, and returns false then. A zero time is never.
func (x *exchange) awaitUntil(answer *passthrough.Answer, until time.Time) (answered bool) {
	loopguard.MayWait()
	if answer.Arrived() {
		return true
	}
	x.pipe.Awaiting(true)
	defer x.pipe.Awaiting(false)
	for began := time.Now(); !answer.Arrived(); x.wait() {
		if isPast(until) {
			return false
		}
		x.wakeAt(until)
		x.endIfGone(began)
	}
	return true
}

// isPast reports whether a time has come. Zero never does.
func isPast(due time.Time) bool { return !due.IsZero() && !time.Now().Before(due) }

// goneTimeout is how much longer the upstream may take for a client that has closed. It may have
// closed only its sending side, and be reading still, as "printf … | nc" does.
const goneTimeout = 250 * time.Millisecond

// endIfGone ends the connection to the upstream, if the client has closed and has been waiting for
// an answer too long, since it was asked for.
func (x *exchange) endIfGone(asked time.Time) {
	if x.in.readErr == nil && !x.in.hungUp {
		return
	}
	if asked.Before(x.in.readEnded) {
		asked = x.in.readEnded
	}
	if over := asked.Add(x.patience()); isPast(over) {
		x.pipe.End(passthrough.ClientGone)
	} else {
		x.wakeAt(over)
	}
}

// patience is how much longer the upstream may take for the client, which has closed. Redis runs
// all that a client has sent before it closes its side. But a request that blocks is not to take
// what others wait for, and session locks are not to last.
func (x *exchange) patience() time.Duration {
	if x.in.start < x.in.end && !x.pipe.Blocks() && x.client.holder.ShortestLease() == 0 {
		return passthrough.Linger
	}
	return goneTimeout
}

// await waits until the first of the commands that have begun can go on, or more has come from the
// client: that can be asked, too.
func (l *locker) await() {
	one, began, had := &l.begun[0], time.Now(), l.x.in.news
	if one.asleep {
		l.x.wait() // advance has set the time
		return
	}
	l.pipe.Awaiting(true)
	defer l.pipe.Awaiting(false)
	for due := one.due(); !one.answer.Arrived() && !isPast(due) && l.x.in.news == had; {
		l.x.wakeAt(due)
		l.x.endIfGone(began)
		l.x.wait()
	}
}

// uselessness is why a command that waits is useless by now, as far as is known: ErrGone, ErrLost
// or nil.
func (x *exchange) uselessness() error {
	switch {
	case x.in.gone(), x.client.drains():
		return failure.ErrGone
	case x.pipe.Lost():
		return failure.ErrLost
	}
	return nil
}
