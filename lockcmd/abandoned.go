package lockcmd

import (
	"context"
	"errors"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
	"lockproxy/lockcmd/script"
)

// A lock is abandoned if the client that was given it is disconnected, or does not know of it. The
// proxy releases it on a background client, unless another connection of its owner was given it,
// too.

// Gone releases what a closed connection can no longer have: its session locks, locks with unread
// tokens, and those of LOCKs with unknown outcomes. It is called when the client is disconnected,
// and again when its upstream connections have ended, since a LOCK may reach the upstream until
// then.
func (l *releases) Gone(h *held.Holder) {
	loopguard.MayWait()
	list := h.Leave(l.seen.registry)
	if len(list) == 0 {
		return
	}
	over, end := l.patience()
	defer end()
	l.releaseAbandoned(over, list...)
}

// patience is over after the clients' patience.
func (l *releases) patience() (over context.Context, end func()) {
	return context.WithTimeout(l.Timers.Ctx, l.Clients.Patience())
}

// failed releases the lock of a LOCK that failed with err if it may have taken the lock. An OWNER's
// is left alone: it may be an older one that its client knows of.
func (l *releases) failed(h *held.Holder, lock *held.Lock, err error) {
	if !failure.MayHaveRun(err) || lock.Owner != "" {
		return
	}
	lock.MayLast(lock.Timeout + l.cfg.TakeoverGuard)
	h.AddUnknown(lock)
	if !errors.Is(err, failure.ErrLost) { // otherwise Gone does, when the connection has ended
		l.startRelease(lock, func() {})
	}
}

const (
	// maxReleasing bounds how many locks of one client are being released at once.
	maxReleasing = 1024
	// maxUnreleased bounds the releases that are tried again. The other locks run until their
	// timeouts.
	maxUnreleased = 16384
)

// The pause before the next try grows from firstReleasePause to maxReleasePause. After lateRelease
// it is lateReleasePause.
const (
	firstReleasePause = 20 * time.Millisecond
	maxReleasePause   = time.Second
	lateReleasePause  = 15 * time.Second
	lateRelease       = time.Minute
)

// releaseAbandoned releases locks, all at once. It returns when they are released, or when patience
// is over. Failures are tried again until the locks end: to repeat a release does no harm.
func (l *releases) releaseAbandoned(patience context.Context, list ...*held.Lock) {
	loopguard.MayWait()
	if len(list) == 0 {
		return
	}
	room := make(chan struct{}, min(len(list), maxReleasing))
	enter := func() bool {
		select {
		case room <- struct{}{}:
			return true
		case <-patience.Done():
			return false
		}
	}
	for _, lock := range list {
		if enter() {
			l.startRelease(lock, func() { <-room })
		} else {
			l.releaseLater(l.newRelease(lock, func() {}), background.ErrTooLate)
		}
	}
	for range cap(room) { // once it is full again, all are released
		enter()
	}
}

// abandonedRelease is the release of an abandoned lock.
type abandonedRelease struct {
	*held.Lock
	since time.Time
	end   time.Time     // when the lock has ended by itself
	pause time.Duration // before the next try
	later bool          // releases.unreleased counts it
	done  func()        // called when there is nothing left to do
}

func (l *releases) newRelease(lock *held.Lock, done func()) *abandonedRelease {
	timeout := l.cfg.MaxTimeout // RELOCK or its owner may have set that
	if lock.Session || lock.Token == 0 {
		timeout = lock.Lease()
	}
	now := time.Now()
	end := now.Add(timeout + l.cfg.TakeoverGuard)
	return &abandonedRelease{Lock: lock, since: now, end: end, done: done}
}

// startRelease begins to release a lock in the background.
func (l *releases) startRelease(lock *held.Lock, done func()) {
	r := l.newRelease(lock, done)
	l.Timers.After(0, func(ctx context.Context) { l.tryRelease(ctx, r) })
}

// unreadFor is how long after an answer an upstream may take to read what came before on another
// connection.
const unreadFor = 250 * time.Millisecond

// releaseTwice releases a lock that a script may have taken which has no answer: such a script can
// run behind the release, which goes by another connection, but not after a time.
func (l *releases) releaseTwice(lock *held.Lock, until time.Time) {
	l.startRelease(lock, func() {
		l.Timers.After(max(unreadFor, time.Until(until)),
			func(context.Context) { l.startRelease(lock, func() {}) })
	})
}

// tryRelease runs the script once, and again later if the upstream could not do it.
func (l *releases) tryRelease(ctx context.Context, r *abandonedRelease) {
	as := r.Login()
	on := l.Clients.On(ctx, as, r.Key, r.end)
	_, err := l.release(on, r.ID(), as, r.ReleaseProof(), true)
	var said script.ServerError
	switch {
	case err == nil:
		l.endRelease(r)
	case errors.As(err, &said) && !said.IsTransient() &&
		!script.HasCode(said, "BUSY", "MISCONF", "NOREPLICAS"): // it may take writes again soon
		l.endRelease(r)
		l.warnUnreleased(r, err)
	default:
		l.releaseLater(r, err)
	}
}

// releaseLater tries again after a pause, unless the lock will have ended by then. err is why the
// last try failed.
func (l *releases) releaseLater(r *abandonedRelease, err error) {
	limit := maxReleasePause
	if time.Since(r.since) > lateRelease {
		limit = lateReleasePause
	}
	r.pause = max(firstReleasePause, min(2*r.pause, limit))
	if time.Now().Add(r.pause).After(r.end) {
		l.endRelease(r)
		return
	}
	if !r.later {
		r.later = true
		if l.unreleased.Add(1) > maxUnreleased {
			l.endRelease(r)
			l.warnUnreleased(r, err)
			return
		}
	}
	if l.seen.hasServed() && l.told.CompareAndSwap(false, true) {
		l.Log.Warn("cannot release a lock whose holder has disconnected: the proxy tries again "+
			"until the lock expires", "key", r.Key, "error", err)
	}
	l.Timers.After(r.pause, func(ctx context.Context) { l.tryRelease(ctx, r) })
}

func (l *releases) endRelease(r *abandonedRelease) {
	if r.later && l.unreleased.Add(-1) == 0 {
		l.told.Store(false)
	}
	r.done()
}

// warnUnreleased logs that a lock will not be released.
func (l *releases) warnUnreleased(r *abandonedRelease, err error) {
	proof := r.ReleaseProof()
	l.Log.Warn("cannot release a lock whose holder has disconnected: the lock is held until its "+
		"timeout",
		"key", r.Key, proof.Kind, proof.Value, "error", err)
}
