package lockcmd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"lockproxy/internal/monotonic"
)

// The modes of lock.lua, A[10].
const (
	modeTry   = "try"
	modeFirst = "first"
	modeCheck = "check"

	// modeAgain is modeFirst without the fast path, which is useless when only time has passed.
	modeAgain = "again"
)

// lockCall is one call of lock.lua.
type lockCall struct {
	Call
	lockRequest
	id      LockID
	askedAt time.Time
}

// locking takes locks.
type locking struct {
	*background
	queues   *queues
	seen     *observed
	releases *releases
	renewals *renewals
	graces   *gracePeriods
}

// beginTry makes a call of lock.lua, which can give a shared lock to others that wait behind, too.
// It fails in the hold-off after a failover. LOCK without WAIT takes no lock for which clients wait
// here.
func (l *locking) beginTry(
	id LockID, r lockRequest, mode string, others []*waiter,
) (*lockCall, error) {
	l.queues.mu.Lock()
	compete, behind := l.queues.foreign.compete(id, time.Now()), int64(0)
	switch q := l.queues.of[id]; {
	case q == nil:
	case mode == modeTry:
		mode = modeCheck
	default:
		behind = q.allSince()
	}
	l.queues.mu.Unlock()
	t := &lockCall{lockRequest: r, id: id, askedAt: time.Now()}
	if held := l.heldOff(); held > 0 {
		return t, heldOffError(held)
	}
	fast := l.fastLock(r, mode)
	if len(others) > 0 {
		fast = sharersList(others)
	}
	if mode == modeAgain {
		fast, mode = noFastPath, modeFirst
	}
	words := []string{milliseconds(r.timeout), l.unit(), l.retention, milliseconds(takeoverGrace),
		r.connection, r.number, r.who(), flag(r.session), l.proxy, mode,
		l.queues.waitsAs(r.key, compete), r.limitText()}
	if behind > 0 {
		words = append(words, "0", strconv.FormatInt(behind, 10))
	}
	t.Call = l.call(lockScript, r.key, fast, r.owner, words...)
	t.Confirm = l.cfg.confirmation()
	return t, nil
}

// finishTry reads the answer, as lock.lua describes it. It returns what try does.
func (l *locking) finishTry(t *lockCall, answer Answer, err error) (attempt, error) {
	a := attempt{askedAt: t.askedAt}
	found, err := t.ints(2, answer, err)
	if err != nil {
		return a, err
	}
	l.queues.ways.took(t.key, time.Since(a.askedAt))
	a.token, a.foreign = found[0], found[1] == 1
	if a.foreign {
		l.queues.mu.Lock()
		l.queues.foreign.saw(t.id, time.Now())
		l.queues.mu.Unlock()
	}
	third, shared := int64(0), len(found) > 3
	if len(found) > 2 {
		third = found[2]
	}
	if a.token == 0 {
		a.remaining, a.heldShared = FromMS(third), shared
		return a, nil
	}
	a.takenOver, a.renewed, a.before = found[1] > 0, third > 0, third == 2
	a.given, a.exclusive = 1, !shared
	if shared {
		a.given = int(found[3])
	}
	if a.renewed {
		return a, answer.unconfirmed(t.Confirm, stillOwners)
	}
	return a, l.notConfirmed(&answer, t.Confirm)
}

// fastLock is LOCK's fast path. It knows only ms, no takeover guard, and no modeCheck.
func (m *callMaker) fastLock(r lockRequest, mode string) fastArgs {
	if m.cfg.Seconds || m.cfg.TakeoverGuard > 0 || mode == modeCheck {
		return noFastPath
	}
	if r.shared {
		return fastArgs{"", milliseconds(r.timeout) + " " + r.limitText() + " " + m.retention +
			" =" + r.connection + "/" + r.number + " " + r.sharerFields()}
	}
	lives := r.timeout + m.cfg.FenceRetention
	return fastArgs{milliseconds(r.timeout), milliseconds(lives), r.holderFields()}
}

// sharersList is shared.lua's list of waiters that can share a lock. It leaves out the fast path.
func sharersList(others []*waiter) fastArgs {
	var list []byte
	for _, w := range others {
		list = w.appendSharer(list)
	}
	return fastArgs{string(list)}
}

// beginLock is a LOCK without WAIT.
func (l *locking) beginLock(s Session, args [][]byte) (step Step, ok bool) {
	o, err := parseLock(args[1:], l.cfg.MaxTimeout)
	switch {
	case err != nil:
		return answered(errorReply(err)), true
	case o.waits:
		return Step{}, false
	}
	if err := l.permit(o); err != nil {
		return answered(errorReply(err)), true
	}
	r := s.Holder().request(string(args[0]), o)
	t, held := l.beginTry(LockID{s.Identity().DB, r.key}, r, modeTry, nil)
	if held != nil {
		return Step{Finish: func(ctx context.Context, _ Answer, _ error) (Reply, *Step) {
			return l.tried(ctx, s, t, attempt{}, held)
		}}, true
	}
	return Step{&t.Call, func(ctx context.Context, answer Answer, err error) (Reply, *Step) {
		a, err := l.finishTry(t, answer, err)
		return l.tried(ctx, s, t, a, err)
	}}, true
}

// permit refuses a session lock if there are too many.
func (l *locking) permit(o lockOptions) error {
	if o.session && l.renewals.sessions.total.Load() >= maxSessions {
		return UsageError(fmt.Sprintf("ERR this proxy renews %d session locks already: "+
			"lock without SESSION, or through another proxy", maxSessions))
	}
	return nil
}

// tried makes the reply to a LOCK without WAIT. If it has a lock that its client must not get, the
// next step releases that: until the client hears of it, the lock is free again.
func (l *locking) tried(
	ctx context.Context, s Session, t *lockCall, a attempt, err error,
) (Reply, *Step) {
	if err == nil && a.token != 0 {
		return l.acquired(s, t.lockRequest, a), nil
	}
	l.seen.observeRefused(t.id, err)
	if err == nil {
		return nullReply, nil
	}
	lock := &heldLock{lockRequest: t.lockRequest, as: s.Identity(), token: a.token}
	if a.token != 0 {
		if a.before {
			return errorReply(err), nil
		}
		return Reply{}, l.releases.undoStep(s, lock, errorReply(err))
	}
	l.releases.failed(ctx, s, lock, err)
	return errorReply(err), nil
}

// acquired records an acquired lock, and returns the reply.
func (l *locking) acquired(s Session, r lockRequest, a attempt) Reply {
	r.shared = r.shared && !a.exclusive
	lock := &heldLock{lockRequest: r, as: s.Identity(), token: a.token}
	l.recordAcquired(s, lock, a)
	reply := intReply(a.token)
	if !a.before {
		reply.given = lock
	}
	return reply
}

// recordAcquired records a lock that s has acquired.
func (l *locking) recordAcquired(s Session, lock *heldLock, a attempt) {
	lock.since = monotonic.Of(a.askedAt)
	lock.until.Store(lock.since + int64(lock.timeout))
	if lock.session {
		lock.by = s
	}
	if lock.longest > 0 {
		lock.last = lock.since + int64(lock.longest)
	}
	l.renewals.hold(s.Holder(), lock)
	for _, earlier := range l.seen.observeAcquired(lock, a) {
		l.renewals.sessions.verify(0, earlier, "")
	}
	if a.takenOver {
		l.graces.start(lock.as, lock.id(), a.token)
	}
}
