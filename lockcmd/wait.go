package lockcmd

import (
	"strconv"
	"time"
)

// How often the first waiter looks at a lock of which it hears nothing. A release is told; a lost message, a DEL, or a plain
// client's release is not.
const (
	minLook      = 210 * time.Millisecond
	maxLook      = 245 * time.Millisecond
	minPlainLook = 15 * time.Millisecond // beside plain clients
	maxPlainLook = 25 * time.Millisecond
)

// errGone ends a wait whose client has closed, or whose proxy is shutting down.
var errGone = UsageError("ERR the wait was ended: the lock was not acquired")

// wait is LOCK … WAIT: it joins the line of the lock and answers when the lock is this client's, or the time is over. patience
// 0 is without end.
func (l *Locks) wait(s Session, at lineKey, r request, patience time.Duration) Reply {
	l.waiters.Add(1)
	defer l.waiters.Add(-1)
	w := newWaiter(r, s.Identity())
	l.mu.Lock()
	ln := l.lines[at]
	if ln == nil {
		ln = &line{lease: maxLook}
		l.lines[at] = ln
	}
	knows := ln.join(w)
	w.look = ln.first() == w
	l.mu.Unlock()

	err := error(nil)
	if !w.look && (!knows || r.owner != "") {
		err = l.check(s, at, w)
	}
	if err == nil {
		err = l.waitTurn(s, at, w, patience)
	}
	return l.waited(s, at, w, err)
}

// check finds out at once, for one who isn't first in line, what must not come out only when his turn comes: that he may not
// lock here at all, or that he is the owner already.
func (l *Locks) check(s Session, at lineKey, w *waiter) error {
	a, err := l.try(s, at, w.request, asCheck)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && a.token != 0 && w.state != granted {
		w.asked = a.asked
		l.lines[at].grant(w, a.token)
	}
	return err
}

// waitTurn returns when w has been granted the lock, or its time is over, or its client gone, or a look has failed.
func (l *Locks) waitTurn(s Session, at lineKey, w *waiter, patience time.Duration) error {
	var over <-chan time.Time
	if patience > 0 {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		over = timer.C
	}
	l.mu.Lock()
	done := w.state == granted
	l.mu.Unlock()
	if done {
		return nil
	}
	remaining := time.Duration(-1) // of the lock, if this waiter has looked
	if w.look {                    // first in line: most likely the lock is free
		var err error
		if done, remaining, err = l.look(s, at, w); done || err != nil {
			return err
		}
	}
	gone, stop := s.Watch()
	defer stop()
	l.wakes.listen(w.as)
	next := time.NewTimer(0) // of the first in line only; the others wait to be woken
	defer next.Stop()
	<-next.C
	armed := remaining >= 0
	if armed {
		next.Reset(l.untilLook(at, remaining))
	}
	for {
		if first, lease := l.position(at, w); first && !armed {
			next.Reset(l.untilLook(at, lease))
			armed = true
		}
		timeToLook := false
		select {
		case <-gone:
			return errGone
		case <-over:
			return nil
		case <-next.C:
			armed, timeToLook = false, true
		case <-w.wake:
		}
		l.mu.Lock()
		done, asked := w.state == granted, w.look
		l.mu.Unlock()
		if done {
			return nil
		}
		if first, _ := l.position(at, w); !first || !asked && !timeToLook {
			continue
		}
		done, remaining, err := l.look(s, at, w)
		if done || err != nil {
			return err
		}
		next.Reset(l.untilLook(at, remaining))
		armed = true
	}
}

// look tries to take the lock for the first in line.
func (l *Locks) look(s Session, at lineKey, w *waiter) (done bool, remaining time.Duration, err error) {
	l.mu.Lock()
	w.look = false
	l.mu.Unlock()
	a, err := l.try(s, at, w.request, asFirst)
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.state == granted { // by a release, while this was under way
		return true, 0, nil
	}
	if err != nil || a.token == 0 {
		return false, a.remaining, err
	}
	l.lines[at].turn = 0
	l.lines[at].grant(w, a.token)
	w.takenOver = a.takenOver
	w.asked = a.asked
	return true, 0, nil
}

// position tells whether w is first in line, and how long the lock lasts at most that was last given out here, if it is known.
func (l *Locks) position(at lineKey, w *waiter) (first bool, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lines[at]
	if w.place == nil || ln.first() != w {
		return false, 0
	}
	return true, ln.lease
}

// untilLook is how long the first in line waits before it looks again, when the lock has remaining to run.
func (l *Locks) untilLook(at lineKey, remaining time.Duration) time.Duration {
	l.mu.Lock()
	competes := l.plainCompetesLocked(at)
	l.mu.Unlock()
	pause := jitter(minLook, maxLook)
	if competes {
		pause = jitter(minPlainLook, maxPlainLook)
	}
	// At the expiry itself, and a millisecond later: expired means now >= value on a clock that counts whole ones.
	return min(pause, remaining+time.Millisecond)
}

// waited takes w out of the line and makes its answer.
func (l *Locks) waited(s Session, at lineKey, w *waiter, err error) Reply {
	l.mu.Lock()
	for w.state == offered { // a release may be giving it the lock at this moment: its script's answer decides
		l.mu.Unlock()
		<-w.wake
		l.mu.Lock()
	}
	won := w.state == granted
	if !won {
		w.state = left
	}
	if ln := l.lines[at]; ln != nil {
		ln.leave(w)
		if ln.len() == 0 {
			delete(l.lines, at)
		}
	}
	l.mu.Unlock()

	switch {
	case won && (err == errGone || s.Gone()):
		// It crossed with the hang-up: nobody is there to hold it.
		l.releaseToken(s, at, w.as, w.token)
		return errorReply(errGone)
	case won:
		l.acquired(s, at, w.request, attempt{token: w.token, takenOver: w.takenOver, asked: w.asked})
		return intReply(w.token)
	case err != nil:
		return errorReply(err)
	}
	return nullReply
}

// releaseToken releases a lock that was given to somebody who is not there any more.
func (l *Locks) releaseToken(on evaluator, at lineKey, as Identity, token int64) {
	if _, err := l.release(on, at, as, proof{"token", strconv.FormatInt(token, 10)}); err != nil {
		l.log.Warn("cannot release a lock that was given to a waiter whose client has gone: it runs until its timeout",
			"key", at.key, "token", token, "error", err)
	}
}
