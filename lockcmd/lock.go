package lockcmd

import "time"

// How a LOCK asks, as lock.lua names it.
const (
	asTry   = "try"
	asFirst = "first"
	asCheck = "check"

	asAgain = "again" // as asFirst, by who has nothing but time that says that the lock may be free: the short way would be in vain
)

// attempt is what one run of lock.lua found.
type attempt struct {
	token     int64 // 0 if the lock is held
	foreign   bool  // held by, or taken over from, a foreign client
	takenOver bool
	renewed   bool          // its owner had it already, and may know the token
	before    bool          // this connection had been given it before
	remaining time.Duration // of a held lock
	asked     time.Time
}

// try runs lock.lua once. An error may come with a token: unless the connection had it before, the caller must undo it.
func (l *Locks) try(on evaluator, at lineKey, r request, how string) (attempt, error) {
	compete := l.foreignCompete(at)
	a := attempt{asked: time.Now()}
	if held := l.holdOff.remaining(); held > 0 {
		return a, heldOffError(held)
	}
	confirmed, fast := l.confirm(on), l.fastLock(r, how)
	if how == asAgain {
		fast, how = longWay, asFirst
	}
	v, err := l.evalFast(confirmed, lockScript, r.key, fast, r.owner, milliseconds(r.timeout), l.unit(), l.retention,
		milliseconds(takeoverGrace), r.connection, r.number, r.client, flag(r.session), l.proxy, how, l.waitsAs(compete))
	found, err := ints(lockScript, 2, v, err)
	if err != nil {
		return a, err
	}
	a.token, a.foreign = found[0], found[1] == 1
	if a.token == 0 {
		if len(found) > 2 {
			a.remaining = time.Duration(found[2]) * time.Millisecond
		}
	} else {
		a.takenOver = found[1] > 0
		a.renewed = len(found) > 2 && found[2] > 0
		a.before = len(found) > 2 && found[2] == 2
	}
	if a.foreign {
		l.mu.Lock()
		l.foreign.saw(at, time.Now())
		l.mu.Unlock()
	}
	switch {
	case a.token == 0:
		return a, nil
	case a.renewed:
		return a, confirmed.missing(stillOwners)
	}
	return a, l.withheld(confirmed)
}

// fastLock is LOCK's short way, which knows only ms and no takeover guard, and doesn't only check.
func (l *Locks) fastLock(r request, how string) shortWay {
	if l.cfg.Seconds || l.cfg.TakeoverGuard > 0 || how == asCheck {
		return longWay
	}
	return shortWay{milliseconds(r.timeout), milliseconds(r.timeout + l.cfg.FenceRetention), r.companion()}
}

func (l *Locks) runLock(s Session, args [][]byte) Reply {
	o, err := parseLock(args[1:], l.cfg.MaxTimeout)
	if err != nil {
		return errorReply(err)
	}
	r := s.Holder().request(string(args[0]), o)
	at := lineKey{s.Identity().DB, r.key}
	if o.waits {
		return l.wait(s, at, r, o.wait)
	}
	a, err := l.try(s, at, r, asTry)
	switch {
	case err != nil:
		l.observeRefused(err)
		if a.token != 0 && !a.before {
			l.undo(s, at, s.Identity(), r, a.token)
		}
		l.failed(s, at, s.Identity(), r, err)
		return errorReply(err)
	case a.token == 0:
		l.observeRefused(nil)
		return nullReply
	}
	l.acquired(s, at, r, a)
	return intReply(a.token)
}

// acquired does what follows from an acquisition.
func (l *Locks) acquired(s Session, at lineKey, r request, a attempt) {
	l.observeAcquired(at, r, a)
	if r.session {
		l.keep(s, r, a.token, a.asked)
		s.Holder().taken.remove(at)
	} else {
		s.Holder().forget(at)
		s.Holder().taken.add(at, a.asked.Add(r.timeout))
	}
	if !a.before {
		s.Holder().grant(at, s.Identity(), a.token)
	}
	if a.takenOver {
		l.startGrace(s.Identity(), at, a.token)
	}
}
