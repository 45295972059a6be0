package lockcmd

import (
	"context"
	"time"
)

// How a LOCK asks, as lock.lua names it.
const (
	asTry   = "try"
	asFirst = "first"
	asCheck = "check"
)

// attempt is what one run of lock.lua found.
type attempt struct {
	token     int64 // 0 if the lock is held
	plain     bool  // held by, or taken over from, a plain client
	takenOver bool
	remaining time.Duration // of a held lock
	asked     time.Time
}

// try runs lock.lua once.
func (l *Locks) try(on evaluator, at lineKey, r request, how string) (attempt, error) {
	l.mu.Lock()
	competes := l.plainCompetesLocked(at)
	l.mu.Unlock()
	a := attempt{asked: time.Now()}
	ints, err := evalInts(on, lockScript, 2, r.key, r.owner, milliseconds(r.timeout), l.unit(), milliseconds(l.cfg.FenceRetention),
		milliseconds(settling), r.connection, r.number, r.client, flag(r.session), l.proxy, how, flag(competes))
	if err != nil {
		return a, err
	}
	a.token = ints[0]
	if a.token == 0 {
		a.plain = ints[1] == 1
		if len(ints) > 2 {
			a.remaining = time.Duration(ints[2]) * time.Millisecond
		}
	} else {
		a.plain, a.takenOver = ints[1] == 1, ints[1] > 0
	}
	if a.plain {
		l.sawPlain(at)
	}
	return a, nil
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
		return errorReply(err)
	case a.token == 0:
		return nullReply
	}
	l.acquired(s, at, r, a)
	return intReply(a.token)
}

// acquired does what follows from an acquisition.
func (l *Locks) acquired(s Session, at lineKey, r request, a attempt) {
	if r.session {
		l.keep(s, r, a.token, a.asked)
	} else {
		s.Holder().forget(at, 0)
	}
	s.Holder().unheard = unheard{at: at, as: s.Identity(), token: a.token}
	if a.takenOver {
		l.settleLater(s.Identity(), r.key, a.token, 0)
	}
}

// looks are the times after a takeover at which its timestamp is looked at. A plain client writes within the time between its
// own two commands: mostly a millisecond, seldom much more.
var looks = []time.Duration{
	3 * time.Millisecond, 10 * time.Millisecond, 30 * time.Millisecond, 80 * time.Millisecond, 200 * time.Millisecond,
	500 * time.Millisecond, time.Second, 1500 * time.Millisecond, settling - 50*time.Millisecond,
}

// settleLater looks after a lock that was taken over: whether a plain client that lost the race has replaced its timestamp.
// It runs beside the holder's connection, which may be closed or busy.
func (l *Locks) settleLater(as Identity, key string, token int64, look int) {
	if look == len(looks) {
		return
	}
	after := looks[look]
	if look > 0 {
		after -= looks[look-1]
	}
	l.agenda.after(after, func(ctx context.Context) {
		ints, err := evalInts(l.chores.on(ctx, as, choreTimeout), settleScript, 1, key, "")
		switch {
		case ctx.Err() != nil, err == nil && ints[0] == -1:
			return
		case err != nil:
			l.log.Warn("cannot look after a lock while it settles", "key", key, "token", token, "error", err)
		case ints[0] == 1:
			l.log.Info("put right the timestamp of a lock that a plain client had lost and overwritten", "key", key, "token", token)
		}
		l.settleLater(as, key, token, look+1)
	})
}
