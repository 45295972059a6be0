package proxy

// Commands that wait for other clients. Meanwhile their session is parked like any other: the loop
// reads on, sees that the client closes, and takes the command on when that has been woken.

import (
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/failure"
)

// waker wakes the command of a session that waits for other clients.
type waker struct {
	timer *time.Timer   // nil until it is needed
	at    time.Time     // when it fires, or has fired
	woken chan struct{} // holds one; for a session that no loop reads. nil until it is needed
}

// Wake implements the Waker of lockcmd.Client.
func (l *locker) Wake() {
	select {
	case l.waker.woken <- struct{}{}:
	default:
	}
	l.client.reg.Post()
}

// leastPause keeps a command from being woken all the time that cannot do what it is due for.
const leastPause = time.Millisecond

// wakeAt wakes the command at a time, if not sooner. Zero is never.
func (l *locker) wakeAt(due time.Time) {
	now := time.Now()
	if w := &l.waker; !due.IsZero() && (!w.at.After(now) || due.Before(w.at)) {
		pause := due.Sub(now)
		if pause <= 0 {
			pause = leastPause
		}
		if w.at = now.Add(pause); w.timer == nil {
			w.timer = time.AfterFunc(pause, l.Wake)
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

// awaitTurn waits in a session that no loop reads until the command can go on, or more has come from
// the client, or its end.
func (l *locker) awaitTurn() {
	loopguard.MayWait()
	if l.x.in.readErr != nil || l.x.in.hungUp || l.client.drains() { // nothing more is read
		<-l.waker.woken
		return
	}
	watch := l.x.in.startWatch(0)
	select {
	case <-l.waker.woken:
	case <-watch.came:
	case <-watch.ended:
	}
	watch.end()
}

// uselessness is why a command that waits is useless by now, as far as is known: ErrGone, ErrLost or
// nil.
func (x *exchange) uselessness() error {
	switch {
	case x.in.gone(), x.client.drains():
		return failure.ErrGone
	case x.pipe.Lost():
		return failure.ErrLost
	}
	return nil
}
