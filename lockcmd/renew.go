package lockcmd

import (
	"context"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// Session locks are renewed while their connections are open, each after a third of its timeout.
// The timeout counts from the last renewal's request, not from its answer. With MAX a lock is lost
// when it has been held for so long.

// renewals records the locks that connections are given, and renews session locks.
type renewals struct {
	*common
	seen          *observed
	sessions      *sessionLocks
	notifications *releaseNotifications
	tracking      *keyTracking
	releases      *releases
}

// hold records a lock that a connection was given, and begins to renew a session lock.
func (r *renewals) hold(h *Holder, lock *heldLock) {
	if lock.by != nil {
		r.notifications.listen(lock.as, lock.Key)
		r.trackSession(lock)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addLocked(lock)
	if lock.by != nil {
		h.sessions = r.sessions
		r.renewLocked(h, lock, lock.since+int64(lock.timeout()/3))
	}
}

// unlocked follows suspend. A session lock that was not released is renewed at once, or found lost.
func (r *renewals) unlocked(h *Holder, u *unlockCall, released bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if released {
		h.releasedLocked(u.id, u.token, u.proof.Kind == "force")
	}
	for _, lock := range h.provenLocked(u.id, u.proof) {
		if lock.by != nil && !lock.renewed {
			r.renewLocked(h, lock, monotonic.Now())
		}
	}
}

// relocked notes the timeout that RELOCK has given the lock of a token.
func (r *renewals) relocked(
	h *Holder, id names.Lock, p script.Proof, timeout time.Duration, asked int64,
) {
	until := asked + int64(timeout)
	r.seen.registry.extend(id, p.Token(), until)
	h.mu.Lock()
	defer h.mu.Unlock()
	lock := h.findLocked(id, p)
	if lock == nil {
		return
	}
	lock.until.Store(until)
	lock.relocked.Store(int64(timeout))
	if lock.renewed {
		r.renewLocked(h, lock, asked+int64(timeout/3))
	}
}

// renewLocked sets the time of a lock's next renewal. h.mu is held.
func (r *renewals) renewLocked(h *Holder, lock *heldLock, when int64) {
	h.setLocked(lock, true)
	if lock.last != 0 {
		when = min(when, lock.last)
	}
	round := lock.round
	lock.cancel = r.Timers.After(time.Duration(when-monotonic.Now()), func(ctx context.Context) {
		r.renew(ctx, h, lock, round)
	})
}

// renew lets a session lock run for its timeout again. Without an answer it tries again until the
// lock may have expired.
func (r *renewals) renew(ctx context.Context, h *Holder, lock *heldLock, round int) {
	h.mu.Lock()
	timeout, left := lock.timeout(), time.Duration(lock.until.Load()-monotonic.Now())
	current := lock.round == round
	h.mu.Unlock()
	asked := monotonic.Now()
	if lock.last != 0 && asked >= lock.last {
		if current && r.sessions.lose(lock, lostMax) {
			r.releases.startRelease(lock, func() {})
		}
		return
	}
	if lock.last != 0 {
		left = min(left, time.Duration(lock.last-asked))
	}
	c := r.Scripts.Relock(lock.id(), lock.tokenText(), timeout, true)
	until := time.Now().Add(left - c.Confirm.Within) // Eval adds Confirm.Within
	as := lock.login()
	answer, err := r.Clients.On(ctx, as, lock.Key, until).Eval(c)
	ints, err := c.Ints(1, answer, err)
	if err == nil && ints[0] == 1 {
		// A failover could bring back the earlier expiry.
		err = answer.Unconfirmed(c.Confirm, script.NotLonger)
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
		r.seen.registry.extend(lock.id(), lock.token, asked+int64(timeout))
		r.renewLocked(h, lock, asked+int64(timeout/3))
		h.mu.Unlock()
		r.tracking.want(as, lock.Key) // the connection that tracked it may have failed
		if as != lock.as {
			r.notifications.listen(as, lock.Key)
		}
	case err != nil && left > 0 && !isWrongType(err):
		pause := min(max(timeout/20, 5*time.Millisecond), time.Second, max(left, time.Millisecond))
		r.renewLocked(h, lock, monotonic.Now()+int64(pause))
		h.mu.Unlock()
	default:
		h.mu.Unlock()
		r.sessions.lose(lock, lossAtRenewal(err))
	}
}

// trackSession tracks the key of a session lock that is held longer than sessionTracked.
func (r *renewals) trackSession(lock *heldLock) {
	r.Timers.After(sessionTracked, func(context.Context) {
		if r.sessions.has(lock.id()) {
			r.tracking.want(lock.as, lock.Key)
		}
	})
}
