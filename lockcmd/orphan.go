package lockcmd

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// A lock is an orphan when whoever was given it is gone or never heard of it: nobody else will release it, so the proxy does, on
// a connection of its own.

// orphan is a lock to be released for a client that can't release it.
type orphan struct {
	at    lineKey
	as    Identity
	proof proof
	until time.Time // when it has ended by itself, at the latest
}

// given is the proof for releasing a lock that a connection was given and can't have any more. The token alone would not do: an
// owner that has asked again on another connection has the same one.
func given(connection string, token int64) proof {
	return proof{"given", connection + "/" + strconv.FormatInt(token, 10)}
}

// releaseGiven releases a lock that a connection was given and never heard of, unless another connection of its owner has it.
func (l *Locks) releaseGiven(at lineKey, as Identity, connection string, token int64) {
	l.releaseOrphan(at, as, given(connection, token))
}

// unsureOf is the lock that a request may have taken.
func (l *Locks) unsureOf(at lineKey, as Identity, r request) orphan {
	return orphan{at, as, proof{"request", r.connection + "/" + r.number}, l.longestLease(r.timeout)}
}

// releaseRequest releases the lock that a request may have taken, when its outcome never came.
func (l *Locks) releaseRequest(at lineKey, as Identity, r request) {
	l.releaseOrphans(l.unsureOf(at, as, r))
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

// longestLease is when a lock that may be taken now has ended at the latest.
func (l *Locks) longestLease(timeout time.Duration) time.Time {
	return time.Now().Add(timeout + l.cfg.TakeoverGuard)
}

// releaseOrphan releases a lock of which it is not known how long it lasts; see releaseOrphans.
func (l *Locks) releaseOrphan(at lineKey, as Identity, p proof) {
	l.releaseOrphans(orphan{at, as, p, l.longestLease(l.cfg.MaxTimeout)})
}

// releaseOrphans releases locks, all at once. It returns when they are released, or after choreTimeout: the rest is tried for as long
// as the locks last. That is safe: a release that has happened finds nothing to do.
func (l *Locks) releaseOrphans(list ...orphan) {
	if len(list) == 0 {
		return
	}
	patience := time.NewTimer(choreTimeout)
	defer patience.Stop()
	room := make(chan struct{}, min(len(list), maxReleasing))
	leave := func() { <-room }
	for i, o := range list {
		select {
		case room <- struct{}{}:
			l.startRelease(o, leave)
			continue
		case <-patience.C:
		case <-l.agenda.ctx.Done():
		}
		for _, o := range list[i:] {
			l.releaseLater(&release{orphan: o, since: time.Now(), done: func() {}}, errTooLate)
		}
		return
	}
	for range cap(room) { // once it can be filled again, each has been released
		select {
		case room <- struct{}{}:
		case <-patience.C:
			return
		case <-l.agenda.ctx.Done():
			return
		}
	}
}

// release is the releasing of an orphan.
type release struct {
	orphan
	since time.Time
	pause time.Duration // before the next try
	later bool          // Locks.unreleased counts it
	done  func()        // called when there is nothing left to do
}

// startRelease begins to release a lock in the background.
func (l *Locks) startRelease(o orphan, done func()) {
	r := &release{orphan: o, since: time.Now(), done: done}
	l.agenda.after(0, func(ctx context.Context) { l.tryRelease(ctx, r) })
}

// tryRelease asks the upstream once, and goes on later if it could not do it.
func (l *Locks) tryRelease(ctx context.Context, r *release) {
	_, err := l.release(l.chores.on(ctx, r.as, r.at.key, r.until), r.at, r.as, r.proof)
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
func (l *Locks) releaseLater(r *release, err error) {
	limit := maxReleasePause
	if time.Since(r.since) > lateRelease {
		limit = lateReleasePause
	}
	r.pause = max(firstReleasePause, min(2*r.pause, limit))
	if time.Now().Add(r.pause).After(r.until) {
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
			l.log.Warn("cannot release a lock whose holder has gone: this one and others are tried again until they end", "key", r.at.key, "error", err)
		}
	}
	l.agenda.after(r.pause, func(ctx context.Context) { l.tryRelease(ctx, r) })
}

func (l *Locks) endRelease(r *release) {
	if r.later {
		l.unreleased.Add(-1)
	}
	r.done()
}

// warnUnreleased says that a lock will not be released.
func (l *Locks) warnUnreleased(r *release, err error) {
	if omitted, ok := l.releaseLines.allow(time.Now()); ok {
		l.log.Warn("cannot release a lock whose holder has gone: it runs until its timeout", "key", r.at.key, r.proof.kind, r.proof.value,
			"error", err, "others_not_logged", omitted)
	}
}

// isBusy reports whether an error of the upstream's says that it will do what it was asked, but not yet.
func isBusy(said ServerError) bool {
	return hasCode(said, "BUSY", "LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK")
}
