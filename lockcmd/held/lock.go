package held

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/lockinfo"
	"lockproxy/lockcmd/script"
)

// Lock is all that this proxy knows about a lock that a connection was given, or may have been
// given. The Holder and the registry share it. Only the upstream knows whether the lock is held.
type Lock struct {
	script.Request // the LOCK that took it; it never changes
	As             names.Identity
	Token          int64   // 0 if the outcome of the LOCK is not known
	by             *Holder // nil unless it is a session lock
	sent           Sent    // of an undelivered token
	Since          int64   // when it was first asked for, as monotonic.Now
	// Until is when the timeout ends, counted from the request, as monotonic.Now. The upstream
	// keeps the lock at least as long. It is 0 once another client has released the lock here.
	Until atomic.Int64

	converted  atomic.Bool  // it was exclusive, and is shared since
	relocked   atomic.Int64 // the timeout that RELOCK has given it, as time.Duration; 0 if none has
	suspicions atomic.Int32 // that it is lost: see Sessions.verify

	last    int64  // when its renewals end (MAX), as monotonic.Now; 0 is never
	renewed bool   // guarded by Holder.mu
	round   int    // guarded by Holder.mu; counts the changes of renewed, and of the next renewal
	cancel  func() // guarded by Holder.mu; of the next renewal
	failed  error  // guarded by Holder.mu; of the last renewal, if the next one can still succeed

	Journaled journal.Acquisition

	// Only the registry uses these. others are the same lock, held as a session lock by other
	// connections of its owner. place and due are its own in expiry.
	others []*Lock
	place  int
	due    int64

	With []*Lock // given with it by one LOCKALL
}

// Lease is for how long it was given, by LOCK or since by RELOCK.
func (lock *Lock) Lease() time.Duration {
	if d := lock.relocked.Load(); d != 0 {
		return time.Duration(d)
	}
	return lock.Timeout
}

func (lock *Lock) ID() names.Lock { return names.Lock{DB: lock.As.DB, Key: lock.Key} }

// Login is the login with which the proxy works for the lock. A session lock's client can have
// logged in again since its LOCK, because the password or token that it had then expires.
func (lock *Lock) Login() names.Identity {
	if lock.by != nil && lock.by.Login != nil {
		if now := lock.by.Login(); now.LoggedIn {
			now.DB = lock.As.DB
			return now
		}
	}
	return lock.As
}

// ID names a lock of one holder.
type ID struct {
	names.Lock
	token int64 // 0 unless the lock was shared from the beginning, and can have several holders
}

// IsShared reports whether others may hold the lock, too.
func (lock *Lock) IsShared() bool { return lock.Shared || lock.converted.Load() }

func (lock *Lock) heldID() ID {
	if lock.Shared {
		return ID{lock.ID(), lock.Token}
	}
	return ID{lock.ID(), 0}
}

func (lock *Lock) tokenText() string { return strconv.FormatInt(lock.Token, 10) }

// ReleaseProof is the proof for a release when the connection can no longer have the lock. A token
// would release the lock of the owner's other connections, too.
func (lock *Lock) ReleaseProof() script.Proof {
	if lock.Token == 0 {
		return script.Proof{Kind: "request", Value: lock.Connection + "/" + lock.Number}
	}
	return script.Proof{Kind: "given", Value: lock.Connection + "/" + lock.tokenText()}
}

// TakenBy notes that h has acquired the lock, for which it asked at a time.
func (lock *Lock) TakenBy(h *Holder, asked time.Time) {
	lock.Since = monotonic.Of(asked)
	lock.Until.Store(lock.Since + int64(lock.Timeout))
	if lock.Session {
		lock.by = h
	}
	if lock.Longest > 0 {
		lock.last = lock.Since + int64(lock.Longest)
	}
}

// MayLast notes until when a lock may be held whose LOCK has an unknown outcome.
func (lock *Lock) MayLast(d time.Duration) { lock.Until.Store(monotonic.Now() + int64(d)) }

// Holder is its holder, for the journal.
func (lock *Lock) Holder() journal.Holder {
	return journal.Holder{Token: lock.Token, Owner: lock.OwnerOrName(), Client: lock.Client,
		Note: lock.Note}
}

// Info is what this proxy knows about the lock.
func (lock *Lock) Info() lockinfo.Info {
	mode := script.Request{Shared: lock.IsShared()}.Mode()
	return lockinfo.Info{
		Lock: lock.ID(), Kind: script.KindLockproxy, Token: lock.Token, Owner: lock.Owner,
		Client: lock.Client, Name: lock.Name, Note: lock.Note,
		Age: monotonic.Since(lock.Since), Remaining: -monotonic.Since(lock.Until.Load()),
		Session: lock.Session, Mode: mode, Holders: 1,
	}
}

// sessionsExcept takes the sessions that have the lock out of it, except that of one connection.
func (lock *Lock) sessionsExcept(connection string) []*Lock {
	list := lock.appendSessions(nil)
	lock.others = nil
	return slices.DeleteFunc(list, func(other *Lock) bool {
		return other.Connection == connection
	})
}

// appendSessions appends the sessions that have the lock.
func (lock *Lock) appendSessions(list []*Lock) []*Lock {
	list = append(list, lock.others...)
	if lock.by != nil {
		list = append(list, lock)
	}
	return list
}
