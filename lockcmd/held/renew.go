package held

import (
	"context"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/script"
)

// Session locks are renewed while their connections are open, each after a third of its timeout.
// The timeout counts from the last renewal's request, not from its answer. With MAX a lock is lost
// when it has been held for so long.

// Renewals records the locks that connections are given, and renews session locks.
type Renewals struct {
	*background.Jobs
	registry *Registry
	Sessions *Sessions
	// listen and track make sure that the proxy hears early if a lock of a login is lost: by
	// another proxy's message, and because its key has changed.
	listen, track func(as names.Identity, key string)
	release       func(*Lock) // releases a lock in the background
}

func NewRenewals(
	s *Sessions, listen, track func(as names.Identity, key string), release func(*Lock),
) *Renewals {
	return &Renewals{Jobs: s.Jobs, registry: s.registry, Sessions: s, listen: listen, track: track,
		release: release}
}

// SessionTracked is how old a session lock must be to be tracked: many are released before.
const SessionTracked = 50 * time.Millisecond

// Hold records a lock that a connection was given. A session lock is renewed from then on.
func (r *Renewals) Hold(h *Holder, lock *Lock) {
	if lock.by != nil {
		r.listen(lock.As, lock.Key)
		r.trackSession(lock)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addLocked(lock)
	if lock.by != nil {
		h.sessions = r.Sessions
		r.renewLocked(h, lock, lock.Since+int64(lock.Lease()/3))
	}
}

// Unlocked follows suspend, when a release with a proof has been answered; token is what that has
// ended, if it is known. A session lock that was not released is renewed at once, or found lost.
func (r *Renewals) Unlocked(
	h *Holder, id names.Lock, p script.Proof, token int64, released bool,
) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if released {
		h.releasedLocked(id, token, p.Kind == "force")
	}
	for _, lock := range h.provenLocked(id, p) {
		if lock.by != nil && !lock.renewed {
			r.renewLocked(h, lock, monotonic.Now())
		}
	}
}

// Relocked notes the timeout that RELOCK has given the lock of a token.
func (r *Renewals) Relocked(
	h *Holder, id names.Lock, p script.Proof, timeout time.Duration, asked int64,
) {
	until := asked + int64(timeout)
	r.registry.extend(id, p.Token(), until)
	h.mu.Lock()
	defer h.mu.Unlock()
	lock := h.findLocked(id, p)
	if lock == nil {
		return
	}
	lock.Until.Store(until)
	lock.relocked.Store(int64(timeout))
	if lock.renewed {
		r.renewLocked(h, lock, asked+int64(timeout/3))
	}
}

// Shares notes that the lock of a token is shared from now on.
func (r *Renewals) Shares(h *Holder, id names.Lock, p script.Proof) {
	r.registry.Visit(id, func(lock *Lock) {
		if lock.Token != p.Token() {
			return
		}
		for _, one := range append(lock.others, lock) {
			one.converted.Store(true)
		}
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if lock := h.findLocked(id, p); lock != nil {
		lock.converted.Store(true)
	}
}

// renewLocked sets the time of a lock's next renewal. h.mu is held.
func (r *Renewals) renewLocked(h *Holder, lock *Lock, when int64) {
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
func (r *Renewals) renew(ctx context.Context, h *Holder, lock *Lock, round int) {
	h.mu.Lock()
	timeout, left := lock.Lease(), time.Duration(lock.Until.Load()-monotonic.Now())
	current := lock.round == round
	h.mu.Unlock()
	asked := monotonic.Now()
	if lock.last != 0 && asked >= lock.last {
		if current && r.Sessions.lose(lock, lostMax) {
			r.release(lock)
		}
		return
	}
	if lock.last != 0 {
		left = min(left, time.Duration(lock.last-asked))
	}
	c := r.Scripts.Relock(lock.ID(), lock.tokenText(), timeout, true)
	until := time.Now().Add(left - c.Confirm.Within) // Eval adds Confirm.Within
	as := lock.Login()
	answer, err := r.Clients.On(ctx, as, lock.Key, until).Eval(c)
	ints, err := c.Ints(1, answer, err)
	if err == nil && ints[0] == 1 {
		// A failover could bring back the earlier expiry.
		err = answer.Unconfirmed(c.Confirm, script.UnsafeTimeout)
	}
	h.mu.Lock()
	if lock.round != round || ctx.Err() != nil { // released, or given another timeout, meanwhile
		if err == nil && ints[0] == 1 && lock.Lease() == timeout { // it lasts longer even so
			lock.Until.Store(max(lock.Until.Load(), asked+int64(timeout)))
		}
		h.mu.Unlock()
		return
	}
	left = time.Duration(lock.Until.Load() - monotonic.Now())
	switch {
	case err == nil && ints[0] == 1:
		lock.Until.Store(asked + int64(timeout))
		lock.failed = nil
		r.registry.extend(lock.ID(), lock.Token, asked+int64(timeout))
		r.renewLocked(h, lock, asked+int64(timeout/3))
		h.mu.Unlock()
		r.track(as, lock.Key) // the connection that tracked it may have failed
		if as != lock.As {
			r.listen(as, lock.Key)
		}
	case err != nil && left > 0 && !isWrongType(err):
		lock.failed = err
		pause := min(max(timeout/20, 5*time.Millisecond), time.Second, max(left, time.Millisecond))
		r.renewLocked(h, lock, monotonic.Now()+int64(pause))
		h.mu.Unlock()
	default:
		if err != nil && lock.failed != nil && !isWrongType(err) {
			err = lock.failed // the last attempt had hardly any time for an answer
		}
		h.mu.Unlock()
		r.Sessions.lose(lock, lossAtRenewal(err))
	}
}

// trackSession tracks the key of a session lock that is held longer than SessionTracked.
func (r *Renewals) trackSession(lock *Lock) {
	r.Timers.After(SessionTracked, func(context.Context) {
		if r.Sessions.Has(lock.ID()) {
			r.track(lock.As, lock.Key)
		}
	})
}
