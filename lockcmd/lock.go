package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/monotonic"
)

// The modes of lock.lua, A[10].
const (
	modeTry   = "try"
	modeFirst = "first"
	modeCheck = "check"

	// modeAgain is modeFirst without the fast path, which is no use when only time has passed.
	modeAgain = "again"
)

// lockRun is a run of lock.lua.
type lockRun struct {
	Call
	lockRequest
	id      LockID
	askedAt time.Time
}

// beginTry makes the call for a run. It fails in the hold-off after a failover.
func (l *Locks) beginTry(id LockID, r lockRequest, mode string) (*lockRun, error) {
	compete := l.foreignCompete(id)
	t := &lockRun{lockRequest: r, id: id, askedAt: time.Now()}
	if held := l.holdOff.remaining(); held > 0 {
		return t, heldOffError(held)
	}
	fast := l.fastLock(r, mode)
	if mode == modeAgain {
		fast, mode = noFastPath, modeFirst
	}
	t.Call = l.call(lockScript, r.key, fast, r.owner,
		milliseconds(r.timeout), l.unit(), l.retention, milliseconds(takeoverGrace),
		r.connection, r.number, r.client, flag(r.session), l.proxy, mode, l.waitsAs(compete))
	t.Confirm = l.cfg.replicas()
	return t, nil
}

// finishTry returns the result of a run, as try does.
func (l *Locks) finishTry(t *lockRun, answer Answer, err error) (attempt, error) {
	a := attempt{askedAt: t.askedAt}
	found, err := t.ints(2, answer, err)
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
		l.foreign.saw(t.id, time.Now())
		l.mu.Unlock()
	}
	switch {
	case a.token == 0:
		return a, nil
	case a.renewed:
		return a, answer.missingReplicas(t.Confirm, stillOwners)
	}
	return a, l.notConfirmed(&answer, t.Confirm)
}

// fastLock is LOCK's fast path, which knows only ms, no takeover guard, and no modeCheck.
func (l *Locks) fastLock(r lockRequest, mode string) fastArgs {
	if l.cfg.Seconds || l.cfg.TakeoverGuard > 0 || mode == modeCheck {
		return noFastPath
	}
	lives := r.timeout + l.cfg.FenceRetention
	return fastArgs{milliseconds(r.timeout), milliseconds(lives), r.holderFields()}
}

// beginLock is a LOCK without WAIT.
func (l *Locks) beginLock(s Session, args [][]byte) (step Step, ok bool) {
	o, err := parseLock(args[1:], l.cfg.MaxTimeout)
	switch {
	case err != nil:
		return answered(errorReply(err)), true
	case o.waits:
		return Step{}, false
	}
	r := s.Holder().request(string(args[0]), o)
	t, held := l.beginTry(LockID{s.Identity().DB, r.key}, r, modeTry)
	if held != nil {
		return Step{finish: func(ctx context.Context, _ Answer, _ error) Reply {
			return l.tried(ctx, s, t, attempt{askedAt: t.askedAt}, held)
		}}, true
	}
	return Step{&t.Call, func(ctx context.Context, answer Answer, err error) Reply {
		a, err := l.finishTry(t, answer, err)
		return l.tried(ctx, s, t, a, err)
	}}, true
}

// tried is the reply to a LOCK without WAIT.
func (l *Locks) tried(ctx context.Context, s Session, t *lockRun, a attempt, err error) Reply {
	switch {
	case err != nil:
		l.observeRefused(t.id, err)
		if a.token != 0 && !a.before {
			l.undo(s, &heldLock{lockRequest: t.lockRequest, as: s.Identity(), token: a.token})
		}
		l.failed(ctx, s, &heldLock{lockRequest: t.lockRequest, as: s.Identity()}, err)
		return errorReply(err)
	case a.token == 0:
		l.observeRefused(t.id, nil)
		return nullReply
	}
	return l.acquired(s, t.lockRequest, a)
}

// acquired records an acquired lock, and returns the reply.
func (l *Locks) acquired(s Session, r lockRequest, a attempt) Reply {
	lock := &heldLock{lockRequest: r, as: s.Identity(), token: a.token}
	lock.since = monotonic.Of(a.askedAt)
	lock.until.Store(lock.since + int64(r.timeout))
	if r.session {
		lock.by = s
	}
	l.hold(s.Holder(), lock)
	l.observeAcquired(lock, a)
	if a.takenOver {
		l.startGrace(lock.as, lock.id(), a.token)
	}
	reply := intReply(a.token)
	if !a.before {
		reply.given = lock
	}
	return reply
}
