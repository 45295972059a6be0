package lockcmd

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"lockproxy/internal/foreign"
	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// A session lock can be lost while its connection is open: it is forced, or its key is deleted or
// overwritten, or the upstream does not answer. The next renewal finds that. If this proxy sees a
// relayed command or another proxy's message that may have ended one, it asks the upstream at once.

// maxSessions bounds the session locks of all clients.
const maxSessions = registryShards * maxRegistered

// sessionLocks finds out which session locks of this proxy are lost.
type sessionLocks struct {
	*common
	seen  *observed
	total atomic.Int64
	keys  *foreign.Filter // so that it is cheap to see that a relayed command concerns none
}

// count counts a lock that is renewed from now on, or with -1 one that no longer is.
func (s *sessionLocks) count(key string, n int) {
	s.total.Add(int64(n))
	s.keys.Add(key, int32(n))
}

// AnySession reports whether a client here has a session lock.
func (s *sessionLocks) AnySession() bool { return s.total.Load() > 0 }

// MayBeSession reports whether a key may be that of a session lock. false is certain.
func (s *sessionLocks) MayBeSession(key []byte) bool { return s.keys.May(key) }

// has reports whether a lock is a session's.
func (s *sessionLocks) has(id names.Lock) bool { return len(s.seen.registry.sessionsOf(id)) > 0 }

// VerifySessions asks the upstream, soon, whether clients still hold the session locks at keys of
// database db. No keys are all keys of all databases. why says what the proxy has seen, "" that the
// key has changed.
func (s *sessionLocks) VerifySessions(db int, keys []string, why string) {
	if len(keys) == 0 { // these can be many, and an event loop must not wait
		s.Timers.After(0, func(context.Context) {
			for i, lock := range s.seen.registry.allSessions() {
				s.verify(time.Duration(i)*verifyApart, lock, why)
			}
		})
	}
	for _, key := range keys {
		for _, lock := range s.seen.registry.sessionsOf(names.Lock{DB: db, Key: key}) {
			s.verify(0, lock, why)
			if lock.Shared && why == "" {
				break // its other holders change the key, too; if one loses it, all do
			}
		}
	}
}

const (
	// verifyEvery is the shortest time between two questions about one lock.
	verifyEvery = 10 * time.Millisecond
	// verifyApart is the time between two questions of those about all locks.
	verifyApart = 20 * time.Microsecond
)

// verify asks the upstream whether a client still holds its session lock. One question at a time is
// under way; a new suspicion meanwhile makes it ask again.
func (s *sessionLocks) verify(pause time.Duration, lock *heldLock, why string) {
	if lock.suspicions.Add(1) == 1 {
		s.verifyAfter(pause, lock, why)
	}
}

func (s *sessionLocks) verifyAfter(pause time.Duration, lock *heldLock, why string) {
	s.Timers.After(pause, func(ctx context.Context) {
		seen := lock.suspicions.Load()
		on := s.Clients.On(ctx, lock.login(), lock.Key, time.Now().Add(s.Clients.Patience()))
		v, err := s.Ask(on, script.CheckScript, lock.Key, lock.tokenText())
		if err == nil && v.Int == 0 || isWrongType(err) {
			s.lose(lock, cmp.Or(why, lossAtRenewal(err)))
			if lock.Shared {
				s.VerifySessions(lock.as.DB, []string{lock.Key}, cmp.Or(why, lostNotHeld))
			}
		}
		if !lock.suspicions.CompareAndSwap(seen, 0) {
			lock.suspicions.Store(1)
			s.verifyAfter(verifyEvery, lock, why)
		}
	})
}

// isWrongType reports whether a lock's key holds something else.
func isWrongType(err error) bool {
	var said script.ServerError
	return errors.As(err, &said) && script.HasCode(said, "WRONGTYPE")
}

// Why a session lock is lost, for the log.
const (
	lostNotHeld   = "its token does not hold it: it was released, deleted or overwritten"
	lostWrongType = "its key was overwritten"
	lostElsewhere = "released through another proxy"

	lostNotRenewed = "not renewed in time: "
	lostMax        = "held for as long as its MAX allows"
)

// lossKind is what the journal calls a loss: Deleted if the key was deleted or overwritten.
func lossKind(why string) journal.Kind {
	if why == lostNotHeld || why == lostElsewhere || tokenHolds(why) {
		return journal.Lost
	}
	return journal.Deleted
}

// tokenHolds reports whether a session has lost its lock alone: the token may hold it still.
func tokenHolds(why string) bool {
	return why == lostMax || strings.HasPrefix(why, lostNotRenewed)
}

// lossAtRenewal says why a renewal has failed.
func lossAtRenewal(err error) string {
	switch {
	case err == nil:
		return lostNotHeld
	case isWrongType(err):
		return lostWrongType
	}
	return lostNotRenewed + err.Error()
}

// released tells the sessions of a lock that a release here has ended it.
func (s *sessionLocks) released(lock *heldLock, by *unlockCall) {
	for _, session := range lock.sessionsExcept("") {
		s.lose(session, lossByRelease(by))
	}
	if lock.by == nil {
		lock.until.Store(0)
	}
}

// lossByRelease names a release here that has ended a lock.
func lossByRelease(r *unlockCall) string {
	switch {
	case r.by == nil:
		return "released by an operator"
	case r.proof.Kind == "force":
		return "forced by " + r.by.Addr
	}
	return "released with its token by " + r.by.Addr
}

// lose tells a session that its lock is lost, if it is still being renewed; otherwise it returns
// false. Other sessions of its owner have lost it, too, unless tokenHolds.
func (s *sessionLocks) lose(lock *heldLock, why string) (lost bool) {
	h := lock.by
	h.mu.Lock()
	if !lock.renewed {
		h.mu.Unlock()
		return false
	}
	h.removeLocked(lock.heldID())
	h.mu.Unlock()
	s.seen.counters.lost.Add(1)
	others, ended := s.seen.registry.lose(lock, tokenHolds(why))
	if ended {
		s.seen.journalEnd(lossKind(why), lock, monotonic.Now())
	}
	line := []any{"key", lock.Key, "token", lock.token, "client", h.Addr, "reason", why}
	if who := lock.OwnerOrName(); who != "" {
		line = append(line, "owner", strings.ToValidUTF8(who, "?"))
	}
	s.Log.Warn("session lock lost", line...)
	h.LockLost(lock.Key, lock.token)
	for _, other := range others {
		s.lose(other, why)
	}
	return true
}
