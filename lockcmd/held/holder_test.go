package held

import (
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/journal"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/script"
)

// recordOf is a lock that ends at a time.
func recordOf(key string, token int64, until time.Time) *Lock {
	lock := &Lock{Request: script.Request{Key: key, Connection: "c"}, Token: token}
	lock.Since = monotonic.Now()
	lock.Until.Store(monotonic.Of(until))
	return lock
}

// testSessions are the session locks of a proxy without an upstream.
func testSessions(r *Registry) *Sessions {
	bg := &background.Jobs{Timers: background.NewTimers(), Log: hclog.NewNullLogger()}
	return NewSessions(bg, r, &names.Filter{}, func(journal.Kind, *Lock, bool) {})
}

// testRenewals are the renewals of a proxy without an upstream.
func testRenewals() *Renewals {
	r, _ := testRegistry()
	nothing := func(names.Identity, string) {}
	return NewRenewals(testSessions(r), nothing, nothing, func(*Lock) {})
}

// However many locks a connection takes, it counts as a holder until it has released each or the
// last has expired.
func TestHolds(t *testing.T) {
	h, l := &Holder{}, testRenewals()
	defer l.Timers.Close()
	if _, holds := h.Holds(); holds {
		t.Error("a new connection holds a lock")
	}
	key := func(i int) string { return fmt.Sprint("lock-", i) }
	at := func(i int) names.Lock { return names.Lock{DB: 0, Key: key(i)} }
	take := func(i int, until time.Time) *Lock {
		lock := recordOf(key(i), 7, until)
		l.Hold(h, lock)
		return lock
	}
	holdsUntil := func(what string, want time.Time) {
		t.Helper()
		until, holds := h.Holds()
		if !holds || until.Before(want.Add(-time.Minute)) || until.After(want.Add(time.Minute)) {
			t.Errorf("%s: until %v (%v), want %v", what, until, holds, want)
		}
	}
	soon, later := time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	take(0, soon)
	take(1, soon)
	l.Unlocked(h, at(1), script.Proof{}, 0, true)
	l.Unlocked(h, at(2), script.Proof{}, 0, true)
	holdsUntil("with one lock", soon)
	now := monotonic.Now()
	l.Relocked(h, at(0), script.Proof{Kind: "token", Value: "7"}, 2*time.Hour, now)
	l.Relocked(h, at(0), script.Proof{Kind: "token", Value: "8"}, time.Minute, now) // another's token
	l.Relocked(h, at(1), script.Proof{Kind: "token", Value: "7"}, 2*time.Hour, now)
	holdsUntil("with that lock relocked", later)
	l.Unlocked(h, at(0), script.Proof{}, 0, true)
	if _, holds := h.Holds(); holds {
		t.Error("it holds a lock when it has released all")
	}
	take(0, later).Until.Store(0)
	if _, holds := h.Holds(); holds {
		t.Error("it holds a lock that another client has released")
	}
	for i := range 10 * maxHeld {
		take(i, soon)
	}
	if len(h.locks) > maxHeld {
		t.Errorf("%d are remembered", len(h.locks))
	}
	for i := range 10 * maxHeld {
		l.Unlocked(h, at(i), script.Proof{}, 0, true)
	}
	holdsUntil("beyond what is remembered one by one", soon)
	h.mu.Lock()
	h.more = monotonic.Now() // all have ended
	for _, lock := range h.locks {
		lock.Until.Store(h.more)
	}
	h.mu.Unlock()
	if _, holds := h.Holds(); holds {
		t.Error("it holds a lock when all have expired")
	}
}

// A connection remembers few of the locks that others have released.
func TestReleasedByOthersIsForgotten(t *testing.T) {
	h, l := &Holder{}, testRenewals()
	defer l.Timers.Close()
	for i := range 1000 {
		lock := recordOf(fmt.Sprint(i), 7, time.Now().Add(time.Hour))
		l.Hold(h, lock)
		lock.Until.Store(0)
	}
	if len(h.locks) > 8 {
		t.Errorf("%d are remembered", len(h.locks))
	}
}

// All locks of a LOCKALL are undelivered as long as its token is.
func TestUndeliveredLockall(t *testing.T) {
	h, lock := &Holder{}, recordOf("a", 7, time.Now().Add(time.Hour))
	lock.With = []*Lock{recordOf("b", 7, time.Now().Add(time.Hour)),
		recordOf("c", 7, time.Now().Add(time.Hour))}
	h.MarkSent(lock, Sent{End: 5, In: 3})
	h.MarkDelivered(3)
	h.MarkUnread(func(sent Sent) bool { return sent.End == 5 })
	if len(h.unread) != 3 {
		t.Errorf("%d of three are unread", len(h.unread))
	}
}

// A holder that has released its part of a shared lock by the token does not hold it any more.
func TestSharedReleasedByToken(t *testing.T) {
	h, l := &Holder{}, testRenewals()
	defer l.Timers.Close()
	for _, token := range []int64{7, 8} {
		lock := recordOf("a", token, time.Now().Add(time.Hour))
		lock.Shared = true
		l.Hold(h, lock)
	}
	for i, token := range []int64{7, 8} {
		h.mu.Lock()
		h.releasedLocked(names.Lock{Key: "a"}, token, false)
		h.mu.Unlock()
		if _, holds := h.Holds(); holds != (i == 0) {
			t.Errorf("behind the release of %d it holds one: %v", token, holds)
		}
	}
}

// Undelivered tokens take bounded memory, however many there are, and the last are known.
func TestUndeliveredIsBounded(t *testing.T) {
	h := &Holder{}
	for i := range 10 * maxUndelivered {
		lock := recordOf("a", int64(i), time.Now())
		h.MarkSent(lock, Sent{End: uint64(i), In: uint64(i)})
	}
	if len(h.undelivered) > maxUndelivered || cap(h.undelivered) > 2*maxUndelivered {
		t.Errorf("%d are remembered, with room for %d", len(h.undelivered), cap(h.undelivered))
	}
	if sent, ok := h.LastUndelivered(); !ok || sent.End != 10*maxUndelivered-1 {
		t.Errorf("the last was sent at %v, %v", sent, ok)
	}
	h.MarkDelivered(10*maxUndelivered - 2)
	h.MarkUnread(func(sent Sent) bool { return sent.End > 0 })
	if len(h.unread) != 2 {
		t.Errorf("%d are unread, want 2", len(h.unread))
	}
	h.MarkDelivered(10 * maxUndelivered)
	if _, ok := h.LastUndelivered(); ok {
		t.Error("some are undelivered although the client has been heard")
	}
}
