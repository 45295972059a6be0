package lockcmd

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
	"lockproxy/lockcmd/syntax"
)

// heldLock is all that this proxy knows about a lock that a connection was given, or may have been
// given. The Holder and the registry share it. Only the upstream knows whether the lock is held.
type heldLock struct {
	script.Request // the LOCK that took it; it never changes
	as             names.Identity
	token          int64   // 0 if the outcome of the LOCK is not known
	by             *Holder // nil unless it is a session lock
	sent           Sent    // of an undelivered token
	since          int64   // when it was first asked for, as monotonic.Now
	// until is when the timeout ends, counted from the request, as monotonic.Now. The upstream
	// keeps the lock at least as long. It is 0 once another client has released the lock here.
	until atomic.Int64

	relocked   atomic.Int64 // the timeout that RELOCK has given it, as time.Duration; 0 if none has
	suspicions atomic.Int32 // that it is lost: see sessionLocks.verify

	last    int64  // when its renewals end (MAX), as monotonic.Now; 0 is never
	renewed bool   // guarded by Holder.mu
	round   int    // guarded by Holder.mu; counts the changes of renewed, and of the next renewal
	cancel  func() // guarded by Holder.mu; of the next renewal

	journaled journal.Acquisition

	// others are the same lock, held as a session lock by other connections of its owner. Only the
	// registry uses it.
	others []*heldLock

	with []*heldLock // given with it by one LOCKALL
}

// timeout is for how long it was given, by LOCK or since by RELOCK.
func (lock *heldLock) timeout() time.Duration {
	if d := lock.relocked.Load(); d != 0 {
		return time.Duration(d)
	}
	return lock.Timeout
}

func (lock *heldLock) id() names.Lock { return names.Lock{DB: lock.as.DB, Key: lock.Key} }

// login is the login with which the proxy works for the lock. A session lock's client can have
// logged in again since its LOCK, because the password or token that it had then expires.
func (lock *heldLock) login() names.Identity {
	if lock.by != nil && lock.by.Login != nil {
		if now := lock.by.Login(); now.LoggedIn {
			now.DB = lock.as.DB
			return now
		}
	}
	return lock.as
}

// heldID names a lock of one holder.
type heldID struct {
	names.Lock
	token int64 // 0 unless the lock is shared, and can have several holders
}

func (lock *heldLock) heldID() heldID {
	if lock.Shared {
		return heldID{lock.id(), lock.token}
	}
	return heldID{lock.id(), 0}
}

func (lock *heldLock) tokenText() string { return strconv.FormatInt(lock.token, 10) }

// releaseProof is the proof for a release when the connection can no longer have the lock. A token
// would take it from the owner's other connections, too.
func (lock *heldLock) releaseProof() script.Proof {
	if lock.token == 0 {
		return script.Proof{Kind: "request", Value: lock.Connection + "/" + lock.Number}
	}
	return script.Proof{Kind: "given", Value: lock.Connection + "/" + lock.tokenText()}
}

// Holder is a client connection that holds locks.
type Holder struct {
	Connection string // unique among all proxies; no blanks
	Addr       string // its address, for people; no blanks
	// LockLost tells the client that a session lock is lost. Any goroutine can call it. It does not
	// wait.
	LockLost func(key string, token int64)

	// Login returns the client's present login. Any goroutine can call it. Nil: it does not change.
	Login func() names.Identity

	// Only the session uses these:
	name        string // of the connection, as of the command that is running
	requests    uint64
	undelivered []*heldLock // the client may not have read their tokens; the oldest first
	unread      []*heldLock // the client cannot have read their tokens
	unknown     []*heldLock // LOCKs with unknown outcomes

	waiting *waiter // guarded by queues.mu; of the LOCK that waits, of a LOCKALL its lead

	mu       sync.Mutex
	locks    map[heldID]*heldLock // guarded by mu; given, and not known to be released
	renewed  int                  // guarded by mu; how many of locks are renewed
	more     int64                // guarded by mu; when those beyond maxHeld end, as monotonic.Now
	added    int                  // guarded by mu; since expired ones were last removed
	sessions *sessionLocks        // guarded by mu; nil until a lock is renewed
}

const (
	// maxHeld bounds the locks that a Holder lists, in addition to session locks. Of those beyond,
	// it keeps only the latest timeout.
	maxHeld = 64
	// maxUndelivered bounds the undelivered ones. Beyond it the oldest count as delivered.
	maxUndelivered = 1024
	// maxUnknown bounds the unknown ones. Beyond it the oldest are forgotten.
	maxUnknown = 64
)

// SetName says what the connection is called (CLIENT SETNAME). Only the session's goroutine may
// call it, before a lock command.
func (h *Holder) SetName(name string) {
	if name != "" {
		name = script.ConnName(name)
	}
	h.name = name
}

// request makes a LOCK of this connection.
func (h *Holder) request(key string, o syntax.Lock) script.Request {
	h.requests++
	r := o.Request
	r.Key, r.Connection, r.Client, r.Name = key, h.Connection, h.Addr, h.name
	r.Number = strconv.FormatUint(h.requests, 10)
	return r
}

// setLocked changes whether a lock is renewed, and ends a renewal under way. mu is held.
func (h *Holder) setLocked(lock *heldLock, renewed bool) {
	if lock.renewed {
		lock.cancel()
		h.renewed--
		h.sessions.count(lock.Key, -1)
	}
	if renewed {
		h.renewed++
		h.sessions.count(lock.Key, 1)
	}
	lock.renewed = renewed
	lock.round++
}

// addLocked records a lock that the connection was given, in place of what it had there. mu is
// held.
func (h *Holder) addLocked(lock *heldLock) {
	h.removeLocked(lock.heldID())
	if h.added++; lock.by == nil && h.added >= max(8, len(h.locks)/4) { // not each time
		h.added = 0
		now := monotonic.Now()
		maps.DeleteFunc(h.locks, func(_ heldID, old *heldLock) bool {
			return old.by == nil && old.until.Load() <= now
		})
	}
	if h.locks == nil {
		h.locks = map[heldID]*heldLock{}
	}
	if lock.by != nil || len(h.locks)-h.renewed < maxHeld {
		h.locks[lock.heldID()] = lock
	} else {
		h.more = max(h.more, lock.until.Load())
	}
}

// removeLocked forgets a lock that the connection no longer has, if there is one. mu is held.
func (h *Holder) removeLocked(id heldID) {
	if h.renewed > 0 { // most connections renew none, and save the search
		if lock := h.locks[id]; lock != nil {
			h.setLocked(lock, false)
		}
	}
	delete(h.locks, id)
}

// suspend stops the renewal of the session locks that an UNLOCK with a proof may release: a renewal
// after the UNLOCK would take the lock for lost. renewals.unlocked must follow.
func (h *Holder) suspend(id names.Lock, p script.Proof) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.renewed == 0 {
		return
	}
	for _, lock := range h.provenLocked(id, p) {
		h.setLocked(lock, false)
	}
}

// provenLocked returns the locks that an UNLOCK with a proof may release. mu is held.
func (h *Holder) provenLocked(id names.Lock, p script.Proof) (list []*heldLock) {
	if p.Kind != "force" {
		if lock := h.findLocked(id, p); lock != nil {
			list = append(list, lock)
		}
		return list
	}
	for _, lock := range h.locks {
		if lock.id() == id {
			list = append(list, lock)
		}
	}
	return list
}

// sharedToken is the token of the shared lock that UNLOCK without a token releases, or "-".
func (h *Holder) sharedToken(id names.Lock) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lock := h.findLocked(id, script.Proof{Kind: "connection"}); lock != nil && lock.Shared {
		return lock.tokenText()
	}
	return "-"
}

// findLocked returns the lock that an UNLOCK with a proof may release, nil if the connection has
// none. Without a token it is the last that the connection took. mu is held.
func (h *Holder) findLocked(id names.Lock, p script.Proof) (found *heldLock) {
	lock := h.locks[heldID{id, 0}]
	if lock != nil && (p.Kind != "token" || p.Value == lock.tokenText()) {
		return lock
	}
	if p.Kind == "token" {
		return h.locks[heldID{id, p.Token()}]
	}
	for _, lock := range h.locks {
		if lock.id() == id && (found == nil || lock.token > found.token) {
			found = lock
		}
	}
	return found
}

// releasedLocked forgets a lock that was released: the exclusive one, that of a token if it is not
// 0, or those of all holders. mu is held.
func (h *Holder) releasedLocked(id names.Lock, token int64, all bool) {
	h.removeLocked(heldID{id, 0})
	if token != 0 {
		h.removeLocked(heldID{id, token})
	}
	if all {
		for held := range h.locks {
			if held.Lock == id {
				h.removeLocked(held)
			}
		}
	}
}

// Holds reports whether the connection may hold a lock: neither it nor another client of this proxy
// has released it. until is when all of them have expired; zero if one is renewed.
func (h *Holder) Holds() (until time.Time, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.renewed > 0 {
		return time.Time{}, true
	}
	last := h.more
	for _, lock := range h.locks {
		last = max(last, lock.until.Load())
	}
	left := time.Duration(last - monotonic.Now())
	return time.Now().Add(left), left > 0
}

// ShortestLease is the shortest timeout of the client's session locks, 0 if it has none. Any
// goroutine can call it.
func (h *Holder) ShortestLease() (shortest time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, lock := range h.locks {
		if t := lock.timeout(); lock.renewed && (shortest == 0 || t < shortest) {
			shortest = t
		}
	}
	return shortest
}

// Sent says when a client was sent a token, and at which byte of its replies.
type Sent struct {
	At  time.Time
	End uint64 // bytes sent to the client by then, at least, with the token
	In  uint64 // bytes read from the client by then
}

// MarkSent notes that the client is sent a reply that GivesLock. Only the session's goroutine may
// call it and the following methods.
func (h *Holder) MarkSent(r Reply, sent Sent) {
	if len(h.undelivered) >= maxUndelivered {
		h.undelivered = slices.Delete(h.undelivered, 0, maxUndelivered/2)
	}
	r.given.sent = sent
	h.undelivered = append(h.undelivered, r.given)
	for _, lock := range r.given.with {
		lock.sent = sent
		h.undelivered = append(h.undelivered, lock)
	}
}

// MarkDelivered notes that in bytes have come from the client so far. A token is delivered once the
// client has sent anything after it.
func (h *Holder) MarkDelivered(in uint64) {
	h.undelivered = slices.DeleteFunc(h.undelivered, func(lock *heldLock) bool {
		return lock.sent.In < in
	})
}

// LastUndelivered is where the last token was sent; ok is false if it has been delivered.
func (h *Holder) LastUndelivered() (sent Sent, ok bool) {
	if len(h.undelivered) == 0 {
		return Sent{}, false
	}
	return h.undelivered[len(h.undelivered)-1].sent, true
}

// MarkUnread notes which tokens the client of an ended connection cannot have read. Gone releases
// those locks.
func (h *Holder) MarkUnread(unread func(Sent) bool) {
	h.undelivered = slices.DeleteFunc(h.undelivered, func(lock *heldLock) bool {
		is := unread(lock.sent)
		if is {
			h.unread = append(h.unread, lock)
		}
		return is
	})
}
