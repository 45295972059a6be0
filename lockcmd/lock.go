package lockcmd

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
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
	id      names.Lock
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
	id names.Lock, r lockRequest, mode string, others []*waiter,
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
	script := lockScript
	if r.value != "" {
		script, fast = onceScript, fastArgs{"", "", r.earlyText()}
	}
	t.Call = l.call(script, r.key, fast, r.owner, words...)
	if r.value != "" {
		t.More = []string{r.value}
	}
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
	if found[0] < 0 {
		a.made = true
		return a, nil
	}
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

// beginLock is LOCK.
func (l *waits) beginLock(c Client, args [][]byte) *Step {
	o, err := parseLock(args[1:], l.cfg.MaxTimeout)
	if err == nil {
		err = l.permit(o)
	}
	if err != nil {
		return answered(errorReply(err))
	}
	r := c.request(string(args[0]), o)
	if o.waits {
		return &Step{Wait: func(ctx context.Context, on upstream) Reply {
			return l.wait(ctx, session{c, on}, r, o.wait)
		}}
	}
	return l.tryStep(c, r, func(a attempt, err error) (Reply, *Step) {
		return l.tried(c, lockRequests{r}, a, err)
	})
}

// tryStep tries once to take a lock, and goes on with then.
func (l *locking) tryStep(
	c Client, r lockRequest, then func(attempt, error) (Reply, *Step),
) *Step {
	t, held := l.beginTry(names.Lock{DB: c.As.DB, Key: r.key}, r, modeTry, nil)
	if held != nil {
		return &Step{Finish: func(Answer, error) (Reply, *Step) { return then(attempt{}, held) }}
	}
	return &Step{Call: &t.Call, Finish: func(answer Answer, err error) (Reply, *Step) {
		return then(l.finishTry(t, answer, err))
	}}
}

// permit refuses a session lock if there are too many.
func (l *locking) permit(o lockOptions) error {
	if o.session && l.renewals.sessions.total.Load() >= maxSessions {
		return UsageError(fmt.Sprintf("ERR this proxy renews %d session locks already: "+
			"lock without SESSION, or through another proxy", maxSessions))
	}
	return nil
}

// tried makes the reply to a LOCK or LOCKALL without WAIT. If it has locks that its client must not
// get, further steps release these.
func (l *locking) tried(c Client, rs lockRequests, a attempt, err error) (Reply, *Step) {
	if err == nil && a.token != 0 {
		return l.acquired(c, rs, a), nil
	}
	l.seen.observeRefused(names.Lock{DB: c.As.DB, Key: rs[0].key}, err)
	if err == nil {
		return nullReply, nil
	}
	return l.failed(c, rs, a, err)
}

// failed makes the reply to a LOCK or LOCKALL that has failed with err. It releases what that has
// taken, and what it may have taken.
func (l *locking) failed(c Client, rs lockRequests, a attempt, err error) (Reply, *Step) {
	var undo []rejectedLock
	for _, lock := range rs.locks(c.As, a.token) {
		switch {
		case a.token == 0:
			l.releases.failed(c.Holder, lock, err)
		case !a.before:
			undo = append(undo, rejectedLock{heldLock: lock})
		}
	}
	return l.releases.undoAll(c.Holder, undo, waitFailed(err))
}

// lockRequests are the locks of one LOCK or LOCKALL.
type lockRequests []lockRequest

func (rs lockRequests) locks(as names.Identity, token int64) (list []*heldLock) {
	for _, r := range rs {
		list = append(list, &heldLock{lockRequest: r, as: as, token: token})
	}
	return list
}

// acquired records acquired locks, and makes the reply.
func (l *locking) acquired(c Client, rs lockRequests, a attempt) Reply {
	list := rs.locks(c.As, a.token)
	for _, lock := range list {
		lock.shared = lock.shared && !a.exclusive
		l.recordAcquired(c.Holder, lock, a)
	}
	reply := intReply(a.token)
	if !a.before {
		reply.given, list[0].with = list[0], list[1:]
	}
	return reply
}

// recordAcquired records a lock that h has acquired.
func (l *locking) recordAcquired(h *Holder, lock *heldLock, a attempt) {
	lock.since = monotonic.Of(a.askedAt)
	lock.until.Store(lock.since + int64(lock.timeout))
	if lock.session {
		lock.by = h
	}
	if lock.longest > 0 {
		lock.last = lock.since + int64(lock.longest)
	}
	l.renewals.hold(h, lock)
	for _, earlier := range l.seen.observeAcquired(lock, a) {
		l.renewals.sessions.verify(0, earlier, "")
	}
	if a.takenOver {
		l.graces.start(lock.as, lock.id(), a.token)
	}
}
