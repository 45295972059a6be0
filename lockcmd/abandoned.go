package lockcmd

import (
	"context"
	"errors"
	"slices"
	"time"

	"lockproxy/internal/monotonic"
)

// A lock is abandoned when the client that was given it is gone, or was never told of it. Nobody else
// will release it, so the proxy does, on a connection of its own, unless another connection of its
// owner was given it too.

// Gone releases what a connection that has closed cannot have any more: its session locks, the locks
// whose tokens are unread, and those that it may have taken without being told.
func (l *Locks) Gone(h *Holder) {
	h.mu.Lock()
	list := append(h.unread, h.unknown...)
	for id, lock := range h.locks {
		if lock.by != nil {
			h.removeLocked(id)
			list = append(list, lock)
		}
	}
	h.mu.Unlock()
	l.releaseAbandoned(list...)
}

// failed is for a LOCK that failed with err, and may have taken the lock all the same. An OWNER's is
// left alone: it may be an older one of which its client knows.
func (l *Locks) failed(ctx context.Context, s Session, lock *heldLock, err error) {
	if !mayHaveRun(err) || lock.owner != "" {
		return
	}
	lock.until.Store(monotonic.Now() + int64(lock.timeout+l.cfg.TakeoverGuard))
	s.Holder().addUnknown(lock)
	var late LateError
	switch {
	case errors.As(err, &late): // it is still to run
		l.timers.after(0, func(ctx context.Context) {
			select {
			case <-late.Answered:
				l.startRelease(lock, func() {})
			case <-ctx.Done():
			}
		})
	case context.Cause(ctx) != ErrLost: // nobody knows when it ends
		l.startRelease(lock, func() {})
	}
}

// addUnknown has a lock released when the connection ends, too: until then the LOCK may still be on its
// way to the upstream.
func (h *Holder) addUnknown(lock *heldLock) {
	now := monotonic.Now()
	h.unknown = slices.DeleteFunc(h.unknown, func(old *heldLock) bool { return now > old.until.Load() })
	if len(h.unknown) == maxUnknown {
		h.unknown = slices.Delete(h.unknown, 0, 1)
	}
	h.unknown = append(h.unknown, lock)
}

const (
	// maxReleasing bounds how many locks of one client are being released at once.
	maxReleasing = 1024
	// maxUnreleased bounds the locks that the upstream could not be asked to release yet, of all clients. Others run until their timeouts.
	maxUnreleased = 16384
)

// The pauses between two tries to release a lock grow from the first of these to the second, and in the end to the third.
const (
	firstReleasePause = 20 * time.Millisecond
	maxReleasePause   = time.Second
	lateReleasePause  = 15 * time.Second
	// lateRelease is when a release is late.
	lateRelease = time.Minute
)

// releaseAbandoned releases locks, all at once. It returns when they are released, or after
// choreTimeout: the rest is tried for as long as the locks last. That is safe: a release that has
// happened finds nothing to do.
func (l *Locks) releaseAbandoned(list ...*heldLock) {
	if len(list) == 0 {
		return
	}
	patience := time.NewTimer(backgroundTimeout)
	defer patience.Stop()
	room := make(chan struct{}, min(len(list), maxReleasing))
	leave := func() { <-room }
	for i, lock := range list {
		select {
		case room <- struct{}{}:
			l.startRelease(lock, leave)
			continue
		case <-patience.C:
		case <-l.timers.ctx.Done():
		}
		for _, lock := range list[i:] {
			l.releaseLater(l.newRelease(lock, func() {}), errTooLate)
		}
		return
	}
	for range cap(room) { // once it can be filled again, each has been released
		select {
		case room <- struct{}{}:
		case <-patience.C:
			return
		case <-l.timers.ctx.Done():
			return
		}
	}
}

// abandonedRelease is the releasing of an abandoned lock.
type abandonedRelease struct {
	*heldLock
	since time.Time
	end   time.Time     // when the lock has ended by itself, at the latest
	pause time.Duration // before the next try
	later bool          // Locks.unreleased counts it
	done  func()        // called when there is nothing left to do
}

func (l *Locks) newRelease(lock *heldLock, done func()) *abandonedRelease {
	timeout := l.cfg.MaxTimeout // RELOCK may have given it, and so may its owner
	if lock.session || lock.token == 0 {
		timeout = lock.timeout
	}
	now := time.Now()
	return &abandonedRelease{heldLock: lock, since: now, end: now.Add(timeout + l.cfg.TakeoverGuard), done: done}
}

// startRelease begins to release a lock in the background.
func (l *Locks) startRelease(lock *heldLock, done func()) {
	r := l.newRelease(lock, done)
	l.timers.after(0, func(ctx context.Context) { l.tryRelease(ctx, r) })
}

// tryRelease asks the upstream once, and goes on later if it could not do it.
func (l *Locks) tryRelease(ctx context.Context, r *abandonedRelease) {
	_, err := l.release(l.background.on(ctx, r.as, r.key, r.end), r.id(), r.as, r.releaseProof(), true)
	var said ServerError
	switch {
	case err == nil:
		l.endRelease(r)
	case errors.As(err, &said) && !isBusy(said):
		l.endRelease(r)
		l.warnUnreleased(r, err)
	default:
		l.releaseLater(r, err)
	}
}

// releaseLater tries again after a pause, unless the lock has ended then. err is why it has not been released.
func (l *Locks) releaseLater(r *abandonedRelease, err error) {
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
		switch n := l.unreleased.Add(1); {
		case n > maxUnreleased:
			l.endRelease(r)
			l.warnUnreleased(r, err)
			return
		case n == 1:
			l.log.Warn("cannot release a lock whose holder has gone: this one and others are tried again until they end", "key", r.key, "error", err)
		}
	}
	l.timers.after(r.pause, func(ctx context.Context) { l.tryRelease(ctx, r) })
}

func (l *Locks) endRelease(r *abandonedRelease) {
	if r.later {
		l.unreleased.Add(-1)
	}
	r.done()
}

// warnUnreleased says that a lock will not be released.
func (l *Locks) warnUnreleased(r *abandonedRelease, err error) {
	if omitted, ok := l.releaseLog.allow(time.Now()); ok {
		proof := r.releaseProof()
		l.log.Warn("cannot release a lock whose holder has gone: it runs until its timeout",
			"key", r.key, proof.kind, proof.value, "error", err, "others_not_logged", omitted)
	}
}

// isBusy reports whether an error of the upstream's says that it will do what it was asked, but not yet.
func isBusy(said ServerError) bool {
	return hasCode(said, "BUSY", "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK")
}
