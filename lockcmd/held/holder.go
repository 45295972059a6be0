package held

import (
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

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
	undelivered []*Lock // the client may not have read their tokens; the oldest first
	unread      []*Lock // the client cannot have read their tokens
	unknown     []*Lock // LOCKs with unknown outcomes

	mu       sync.Mutex
	locks    map[ID]*Lock // guarded by mu; given, and not known to be released
	renewed  int          // guarded by mu; how many of locks are renewed
	more     int64        // guarded by mu; when those beyond maxHeld end, as monotonic.Now
	added    int          // guarded by mu; since expired ones were last removed
	sessions *Sessions    // guarded by mu; nil until a lock is renewed
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

// Request is r as the LOCK of this connection for a key.
func (h *Holder) Request(key string, r script.Request) script.Request {
	h.requests++
	r.Key, r.Connection, r.Client, r.Name = key, h.Connection, h.Addr, h.name
	r.Number = strconv.FormatUint(h.requests, 10)
	return r
}

// Exclusive is the request that makes the lock of a token exclusive, for timeout. It has the
// options of the LOCK that took the lock, if this connection has sent that.
func (h *Holder) Exclusive(id names.Lock, p script.Proof, timeout time.Duration) script.Request {
	r := script.Request{Timeout: timeout}
	h.mu.Lock()
	if old := h.findLocked(id, p); old != nil {
		r.Owner, r.Note, r.Session = old.Owner, old.Note, old.by != nil
		if old.last != 0 {
			r.Longest = max(time.Duration(old.last-monotonic.Now()), time.Millisecond)
		}
	}
	h.mu.Unlock()
	return h.Request(id.Key, r)
}

// setLocked changes whether a lock is renewed, and ends a renewal under way. mu is held.
func (h *Holder) setLocked(lock *Lock, renewed bool) {
	if lock.renewed {
		lock.cancel()
	}
	switch {
	case renewed && !lock.renewed:
		h.renewed++
		h.sessions.Count(lock.ID(), 1)
	case !renewed && lock.renewed:
		h.renewed--
		h.sessions.Count(lock.ID(), -1)
	}
	lock.renewed = renewed
	lock.round++
}

// addLocked records a lock that the connection was given, in place of what it had there. mu is
// held.
func (h *Holder) addLocked(lock *Lock) {
	h.removeLocked(lock.heldID())
	if h.added++; lock.by == nil && h.added >= max(8, len(h.locks)/4) { // not each time
		h.added = 0
		now := monotonic.Now()
		maps.DeleteFunc(h.locks, func(_ ID, old *Lock) bool {
			return old.by == nil && old.Until.Load() <= now
		})
	}
	if h.locks == nil {
		h.locks = map[ID]*Lock{}
	}
	if lock.by != nil || len(h.locks)-h.renewed < maxHeld {
		h.locks[lock.heldID()] = lock
	} else {
		h.more = max(h.more, lock.Until.Load())
	}
}

// removeLocked forgets a lock that the connection no longer has, if there is one. mu is held.
func (h *Holder) removeLocked(id ID) {
	if h.renewed > 0 { // most connections renew none, and save the search
		if lock := h.locks[id]; lock != nil {
			h.setLocked(lock, false)
		}
	}
	delete(h.locks, id)
}

// Suspend stops the renewal of the session locks that an UNLOCK with a proof may release: a renewal
// after the UNLOCK would take the lock for lost. Renewals.Unlocked must follow. ends is when one of
// these locks ends without another renewal; zero if there is none.
func (h *Holder) Suspend(id names.Lock, p script.Proof) (ends time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.renewed == 0 {
		return ends
	}
	for _, lock := range h.provenLocked(id, p) {
		if lock.renewed {
			until := lock.Until.Load()
			if lock.last != 0 {
				until = min(until, lock.last)
			}
			ends = time.Now().Add(time.Duration(until - monotonic.Now()))
		}
		h.setLocked(lock, false)
	}
	return ends
}

// provenLocked returns the locks that an UNLOCK with a proof may release. mu is held.
func (h *Holder) provenLocked(id names.Lock, p script.Proof) (list []*Lock) {
	if p.Kind != "force" {
		if lock := h.findLocked(id, p); lock != nil {
			list = append(list, lock)
		}
		return list
	}
	for _, lock := range h.locks {
		if lock.ID() == id {
			list = append(list, lock)
		}
	}
	return list
}

// SharedToken is the token of the shared lock that UNLOCK without a token releases, or "-".
func (h *Holder) SharedToken(id names.Lock) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if lock := h.findLocked(id, script.Proof{Kind: "connection"}); lock != nil && lock.IsShared() {
		return lock.tokenText()
	}
	return "-"
}

// findLocked returns the lock that an UNLOCK with a proof may release, nil if the connection has
// none. Without a token it is the last that the connection took. mu is held.
func (h *Holder) findLocked(id names.Lock, p script.Proof) (found *Lock) {
	lock := h.locks[ID{id, 0}]
	byToken := p.Kind == "token"
	if lock != nil && (byToken && p.Value == lock.tokenText() || !byToken && !lock.IsShared()) {
		return lock
	}
	if p.Kind == "token" {
		return h.locks[ID{id, p.Token()}]
	}
	for _, lock := range h.locks {
		if lock.ID() == id && (found == nil || lock.Token > found.Token) {
			found = lock
		}
	}
	return found
}

// releasedLocked forgets a lock that was released: the exclusive one, that of a token if it is not
// 0, or those of all holders. mu is held.
func (h *Holder) releasedLocked(id names.Lock, token int64, all bool) {
	if lock := h.locks[ID{id, 0}]; lock != nil && (lock.Token == token || !lock.IsShared()) {
		h.removeLocked(ID{id, 0})
	}
	if token != 0 {
		h.removeLocked(ID{id, token})
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
		last = max(last, lock.Until.Load())
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
		if t := lock.Lease(); lock.renewed && (shortest == 0 || t < shortest) {
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

// MarkSent notes that the client is sent the token of a lock. Only the session's goroutine may call
// it and the following methods.
func (h *Holder) MarkSent(lock *Lock, sent Sent) {
	if len(h.undelivered) >= maxUndelivered {
		h.undelivered = slices.Delete(h.undelivered, 0, maxUndelivered/2)
	}
	lock.sent = sent
	h.undelivered = append(h.undelivered, lock)
	for _, lock := range lock.With {
		lock.sent = sent
		h.undelivered = append(h.undelivered, lock)
	}
}

// MarkDelivered notes that in bytes have come from the client so far. A token is delivered once the
// client has sent anything after it.
func (h *Holder) MarkDelivered(in uint64) {
	h.undelivered = slices.DeleteFunc(h.undelivered, func(lock *Lock) bool {
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
	h.undelivered = slices.DeleteFunc(h.undelivered, func(lock *Lock) bool {
		is := unread(lock.sent)
		if is {
			h.unread = append(h.unread, lock)
		}
		return is
	})
}

// AddUnknown lets Gone release a lock again: the LOCK may reach the upstream as late as the
// connection ends.
func (h *Holder) AddUnknown(lock *Lock) {
	now := monotonic.Now()
	h.unknown = slices.DeleteFunc(h.unknown, func(old *Lock) bool {
		return now > old.Until.Load()
	})
	if len(h.unknown) == maxUnknown {
		h.unknown = slices.Delete(h.unknown, 0, 1)
	}
	h.unknown = append(h.unknown, lock)
}

// Leave takes the locks from a connection that has ended: its session locks, which no other has
// then, those with unread tokens, and those of LOCKs with unknown outcomes. The caller releases
// them.
func (h *Holder) Leave(r *Registry) []*Lock {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := append(h.unread, h.unknown...)
	h.unread = nil
	for id, lock := range h.locks {
		if lock.by != nil {
			h.removeLocked(id)
			r.leave(lock)
			list = append(list, lock)
		}
	}
	return list
}
