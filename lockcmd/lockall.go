package lockcmd

import (
	"context"
	"strconv"
	"time"
)

// LOCKALL takes several locks or none. While it waits it holds none. It joins the queues of all its
// locks at the same moment, and asks for all of them when it is first in each: see scripts/all.lua.
// Other proxies see its place in each queue in which it is first, with the time at which it began to
// wait. So the earlier of two requests goes first, whichever locks they want, and no two wait for
// each other.

// allRequest is one LOCKALL of a connection.
type allRequest []lockRequest

func (rs allRequest) locks(as Identity, token int64) (list []*heldLock) {
	for _, r := range rs {
		list = append(list, &heldLock{lockRequest: r, as: as, token: token})
	}
	return list
}

// tryAll runs all.lua once, with modeCheck instead of modeTry if others wait here for one of the
// locks. firstAt is its ARGV[4]. since is when the request began to wait, by the upstream's clock,
// ms; 0 if it has not. If an error comes with a token, the caller must undo that.
func (l *locking) tryAll(
	s Session, rs allRequest, mode, firstAt string, since int64, until time.Time,
) (a attempt, now int64, err error) {
	a.askedAt = time.Now()
	if held := l.heldOff(); held > 0 {
		return a, 0, heldOffError(held)
	}
	r, db, compete := rs[0], s.Identity().DB, false
	l.queues.mu.Lock()
	for _, r := range rs {
		compete = compete || l.queues.foreign.compete(LockID{db, r.key}, a.askedAt)
		if mode == modeTry && l.queues.of[LockID{db, r.key}] != nil {
			mode = modeCheck
		}
	}
	l.queues.mu.Unlock()
	c := l.call(allScript, r.key, fastArgs{mode, firstAt}, r.owner,
		milliseconds(r.timeout), l.unit(), l.retention, milliseconds(takeoverGrace),
		r.connection, r.number, r.who(), flag(r.session), l.proxy, "MODE",
		l.queues.waitsAs(r.key, compete), r.limitText(), "TOKEN", strconv.FormatInt(since, 10))
	for _, r := range rs[1:] {
		c.addLock(r.key)
	}
	c.Confirm, c.Until = l.cfg.confirmation(), until
	answer, err := s.Eval(&c)
	found, err := c.ints(3, answer, err)
	if err != nil {
		return a, 0, err
	}
	l.queues.ways.took(r.key, time.Since(a.askedAt))
	a.token = found[0]
	if a.token == 0 {
		a.remaining = FromMS(found[1])
		l.sawForeign(rs, db, found[3:], mode == modeFirst)
		return a, found[2], nil
	}
	a.takenOver, a.renewed, a.before = found[1] > 0, found[2] > 0, found[2] == 2
	if a.renewed {
		return a, 0, answer.unconfirmed(c.Confirm, stillOwners)
	}
	return a, 0, l.notConfirmed(&answer, c.Confirm)
}

// sawForeign notes which locks foreign clients hold, from 1 on. polled says that the request would
// have taken them.
func (l *locking) sawForeign(rs allRequest, db int, which []int64, polled bool) {
	l.queues.mu.Lock()
	defer l.queues.mu.Unlock()
	for _, i := range which {
		if i < 1 || i > int64(len(rs)) { // none of the script's answers
			continue
		}
		id := LockID{db, rs[i-1].key}
		l.queues.foreign.saw(id, time.Now())
		if polled {
			l.queues.foreign.won(id, time.Now())
		}
	}
}

// addLock adds another lock to a call.
func (c *Call) addLock(key string) { c.More = append(c.More, key, RecordKey([]byte(key))) }

// acquiredAll records acquired locks, and makes the reply.
func (l *locking) acquiredAll(s Session, rs allRequest, a attempt) Reply {
	list := rs.locks(s.Identity(), a.token)
	for _, lock := range list {
		l.recordAcquired(s, lock, a)
	}
	reply := intReply(a.token)
	if !a.before {
		reply.given, list[0].with = list[0], list[1:]
	}
	return reply
}

// failedAll makes the reply to a LOCKALL that failed with err. It releases what that may
// have taken.
func (l *locking) failedAll(
	ctx context.Context, s Session, rs allRequest, a attempt, err error,
) Reply {
	for _, lock := range rs.locks(s.Identity(), a.token) {
		if a.token != 0 && !a.before {
			l.releases.undo(s, lock)
		}
		unknown := &heldLock{lockRequest: lock.lockRequest, as: lock.as}
		l.releases.failed(ctx, s, unknown, err)
	}
	return waitFailed(err)
}

// runLockAll is LOCKALL.
func (l *waits) runLockAll(ctx context.Context, s Session, args [][]byte) Reply {
	o, keys, err := parseLockAll(args, l.cfg.MaxTimeout)
	if err == nil {
		err = l.permit(o)
	}
	if err != nil {
		return errorReply(err)
	}
	rs := make(allRequest, len(keys))
	for i, key := range keys {
		rs[i] = s.Holder().request(string(key), o)
		rs[i].number = rs[0].number
	}
	if o.waits {
		return l.waitAll(ctx, s, rs, o.wait)
	}
	a, _, err := l.tryAll(s, rs, modeTry, "", 0, time.Time{})
	if err == nil && a.token != 0 {
		return l.acquiredAll(s, rs, a)
	}
	l.seen.observeRefused(LockID{s.Identity().DB, rs[0].key}, err)
	if err != nil {
		return l.failedAll(ctx, s, rs, a, err)
	}
	return nullReply
}
