package lockcmd

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// A lock is an orphan when whoever was given it is gone or never heard of it: nobody else will release it, so the proxy does, on
// a connection of its own.

// orphanRetry is the pause before the next try to release an orphan, when the upstream couldn't be reached.
const orphanRetry = 20 * time.Millisecond

// given is the proof for releasing a lock that a connection was given and can't have any more. The token alone would not do: an
// owner that has asked again on another connection has the same one.
func given(connection string, token int64) proof {
	return proof{"given", connection + "/" + strconv.FormatInt(token, 10)}
}

// releaseGiven releases a lock that a connection was given and never heard of, unless another connection of its owner has it.
func (l *Locks) releaseGiven(at lineKey, as Identity, connection string, token int64) {
	l.releaseOrphan(at, as, given(connection, token))
}

// releaseRequest releases the lock that a request may have taken, when its outcome never came.
func (l *Locks) releaseRequest(at lineKey, as Identity, r request) {
	l.releaseOrphan(at, as, proof{"request", r.connection + "/" + r.number})
}

const (
	// busyRetry is the pause before the next try to release an orphan, when the upstream was reached but can't do it yet.
	busyRetry = 100 * time.Millisecond
	// busyPatience is how long that is tried.
	busyPatience = time.Minute
)

// releaseOrphan tries for choreTimeout, which is safe: a release that has happened finds nothing to do. It reports whether the
// upstream was reached; if that is busy the release follows as soon as it isn't, and if it is to be replaced, by what replaces it.
func (l *Locks) releaseOrphan(at lineKey, as Identity, p proof) (reached bool) {
	over := time.Now().Add(choreTimeout)
	for {
		_, err := l.release(l.chores.on(l.agenda.ctx, as, at.key, time.Until(over)), at, as, p)
		if isBusy(err) {
			l.releaseLater(at, as, p, time.Now().Add(busyPatience))
			return true
		}
		var said ServerError
		reached = err == nil || errors.As(err, &said)
		if reached || time.Now().After(over) || !l.pause(orphanRetry) {
			if !reached && l.cfg.Moves {
				l.releaseLater(at, as, p, time.Now().Add(busyPatience))
			} else if err != nil {
				l.log.Warn("cannot release a lock whose holder has gone: it runs until its timeout", "key", at.key, p.kind, p.value, "error", err)
			}
			return reached
		}
	}
}

// releaseLater goes on trying, beside everything else, until the upstream isn't busy or away any more, or over.
func (l *Locks) releaseLater(at lineKey, as Identity, p proof, over time.Time) {
	l.agenda.after(busyRetry, func(ctx context.Context) {
		_, err := l.release(l.chores.on(ctx, as, at.key, choreTimeout), at, as, p)
		switch {
		case err == nil || ctx.Err() != nil:
		case time.Now().Before(over):
			l.releaseLater(at, as, p, over)
		default:
			l.log.Warn("cannot release a lock whose holder has gone: it runs until its timeout", "key", at.key, p.kind, p.value, "error", err)
		}
	})
}

// isBusy reports whether an error of the upstream's says that it will do what it was asked, but not yet.
func isBusy(err error) bool {
	var said ServerError
	if !errors.As(err, &said) {
		return false
	}
	return hasCode(said, "BUSY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK")
}

// pause returns false at once if the proxy is closing.
func (l *Locks) pause(d time.Duration) bool {
	select {
	case <-l.agenda.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
