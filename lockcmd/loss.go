package lockcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/slot"
)

// A session lock can be lost while its connection is open: it is forced, or its key is deleted or
// overwritten, or the upstream does not answer. The next renewal finds that. When another proxy says
// that it has released one, this proxy asks the upstream at once.

// sessionKeys counts this proxy's session locks.
type sessionKeys struct {
	total  atomic.Int64
	bySlot []atomic.Int32 // nil unless the upstream is a cluster
}

func newSessionKeys(cluster bool) *sessionKeys {
	k := &sessionKeys{}
	if cluster {
		k.bySlot = make([]atomic.Int32, slot.Count)
	}
	return k
}

// add counts a lock that is renewed from now on, or with -1 one that is not any more.
func (k *sessionKeys) add(key string, n int32) {
	k.total.Add(int64(n))
	if k.bySlot != nil {
		k.bySlot[slotOf([]byte(key))].Add(n)
	}
}

// AnySession reports whether a client here has a session lock.
func (l *Locks) AnySession() bool { return l.sessions.total.Load() > 0 }

// VerifySessions asks the upstream, soon, whether the session locks at keys of database db still
// are their holders'. No keys are all keys of all databases. why says what the
// proxy has seen, "" that the key has changed.
func (l *Locks) VerifySessions(db int, keys []string, why string) {
	if len(keys) == 0 {
		for i, lock := range l.registry.allSessions() {
			l.verify(time.Duration(i)*verifyApart, lock, why)
		}
	}
	for _, key := range keys {
		for _, lock := range l.registry.sessionsOf(LockID{db, key}) {
			l.verify(0, lock, why)
		}
	}
}

const (
	// verifyEvery is the shortest time between two such questions about one lock.
	verifyEvery = 10 * time.Millisecond
	// verifyApart is the time between two of the questions about all locks.
	verifyApart = 20 * time.Microsecond
)

// verify asks the upstream whether a session lock is its holder's. One question at a time is under
// way; what is seen meanwhile makes it ask again.
func (l *Locks) verify(pause time.Duration, lock *heldLock, why string) {
	if lock.suspicions.Add(1) == 1 {
		l.verifyAfter(pause, lock, why)
	}
}

func (l *Locks) verifyAfter(pause time.Duration, lock *heldLock, why string) {
	l.timers.after(pause, func(ctx context.Context) {
		seen := lock.suspicions.Load()
		on := l.background.on(ctx, lock.as, lock.key, time.Now().Add(backgroundTimeout))
		v, err := l.ask(on, checkScript, lock.key, lock.tokenText())
		if err == nil && v.Int == 0 || isWrongType(err) {
			l.lose(lock, cmp.Or(why, lossAtRenewal(err)))
		}
		if !lock.suspicions.CompareAndSwap(seen, 0) {
			lock.suspicions.Store(1)
			l.verifyAfter(verifyEvery, lock, why)
		}
	})
}

// isWrongType reports whether a lock's key holds something else.
func isWrongType(err error) bool {
	var said ServerError
	return errors.As(err, &said) && hasCode(said, "WRONGTYPE")
}

// Why a session lock is lost, for the log.
const (
	lostNotHeld   = "its token does not hold it: it was released, deleted or overwritten"
	lostWrongType = "its key was overwritten"
	lostElsewhere = "released through another proxy"
)

// lossAtRenewal is why a lock is lost that a renewal has not renewed.
func lossAtRenewal(err error) string {
	switch {
	case err == nil:
		return lostNotHeld
	case isWrongType(err):
		return lostWrongType
	}
	return fmt.Sprintf("not renewed in time: %v", err)
}

// lossByRelease is why a lock is lost that a release here has ended.
func lossByRelease(r *unlockRun) string {
	s, ok := r.on.(Session)
	switch {
	case !ok:
		return "released by an operator"
	case r.proof.kind == "force":
		return "forced by " + s.Holder().Addr
	}
	return "released with its token by " + s.Holder().Addr
}

// lose tells a session that its lock is lost, unless it is not renewed any more.
func (l *Locks) lose(lock *heldLock, why string) {
	h := lock.by.Holder()
	h.mu.Lock()
	if !lock.renewed {
		h.mu.Unlock()
		return
	}
	h.removeLocked(lock.id())
	h.mu.Unlock()
	l.counters.lost.Add(1)
	if l.registry.remove(lock.id(), proof{"token", lock.tokenText()}, 0) != nil {
		kind := journal.Lost
		if why == lostWrongType {
			kind = journal.Deleted
		}
		l.journalEnd(kind, lock, monotonic.Now())
	}
	l.log.Warn("session lock lost",
		"key", lock.key, "token", lock.token, "client", h.Addr, "reason", why)
	lock.by.LockLost(lock.key, lock.token)
}
