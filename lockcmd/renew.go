package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/monotonic"
)

// Session locks are renewed while their connections are open, each when a third of its timeout is
// over. The timeout counts from the request for the last renewal, not from its answer.

// hold records a lock that a connection was given. It begins to renew a session lock.
func (l *Locks) hold(h *Holder, lock *heldLock) {
	if lock.by != nil {
		l.notifications.listen(lock.as, lock.key)
		l.trackSession(lock)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addLocked(lock)
	if lock.by != nil {
		h.sessions = l.sessions
		l.renewLocked(h, lock, lock.since+int64(lock.timeout/3))
	}
}

// unlocked follows suspend. A session lock that was not released is renewed at once, or found lost.
func (l *Locks) unlocked(h *Holder, id LockID, released bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if released {
		h.removeLocked(id)
	} else if lock := h.locks[id]; lock != nil && lock.by != nil && !lock.renewed {
		l.renewLocked(h, lock, monotonic.Now())
	}
}

// relocked is for the lock of a token to which RELOCK has given another timeout.
func (l *Locks) relocked(h *Holder, id LockID, token string, timeout time.Duration, asked int64) {
	until := asked + int64(timeout)
	l.registry.extend(id, token, until)
	h.mu.Lock()
	defer h.mu.Unlock()
	lock := h.locks[id]
	if lock == nil || lock.tokenText() != token {
		return
	}
	lock.until.Store(until)
	lock.timeout = timeout
	if lock.renewed {
		l.renewLocked(h, lock, asked+int64(timeout/3))
	}
}

// renewLocked sets the time of a lock's next renewal. h.mu is held.
func (l *Locks) renewLocked(h *Holder, lock *heldLock, when int64) {
	h.setLocked(lock, true)
	round := lock.round
	lock.cancel = l.timers.after(time.Duration(when-monotonic.Now()), func(ctx context.Context) {
		l.renew(ctx, h, lock, round)
	})
}

// renew lets a session lock run for its timeout again. While the upstream does not answer, it tries
// again until the lock may have expired.
func (l *Locks) renew(ctx context.Context, h *Holder, lock *heldLock, round int) {
	h.mu.Lock()
	timeout, left := lock.timeout, time.Duration(lock.until.Load()-monotonic.Now())
	h.mu.Unlock()
	asked := monotonic.Now()
	c := l.relockCall(lock.id(), lock.tokenText(), timeout, true)
	answer, err := l.background.on(ctx, lock.as, lock.key, time.Now().Add(left)).Eval(c)
	ints, err := c.ints(1, answer, err)
	if err == nil && ints[0] == 1 {
		// A failover could bring back the earlier expiry.
		err = answer.missingReplicas(c.Confirm, notLonger)
	}
	h.mu.Lock()
	if lock.round != round || ctx.Err() != nil { // released, or given another timeout, meanwhile
		h.mu.Unlock()
		return
	}
	left = time.Duration(lock.until.Load() - monotonic.Now())
	switch {
	case err == nil && ints[0] == 1:
		lock.until.Store(asked + int64(timeout))
		l.registry.extend(lock.id(), lock.tokenText(), asked+int64(timeout))
		l.renewLocked(h, lock, asked+int64(timeout/3))
		h.mu.Unlock()
	case err != nil && left > 0 && !isWrongType(err):
		pause := min(max(timeout/20, 5*time.Millisecond), time.Second, max(left, time.Millisecond))
		l.renewLocked(h, lock, monotonic.Now()+int64(pause))
		h.mu.Unlock()
	default:
		h.mu.Unlock()
		l.lose(lock, lossAtRenewal(err))
	}
}

// relockCall lets the lock of a token run for timeout. session is for a renewal by the proxy.
func (l *Locks) relockCall(id LockID, token string, timeout time.Duration, session bool) *Call {
	c := l.call(relockScript, id.Key, noFastPath, "",
		token, milliseconds(timeout), l.unit(), l.retention, flag(session))
	c.Confirm = l.cfg.replicas()
	return &c
}
