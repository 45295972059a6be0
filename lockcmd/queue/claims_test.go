package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/script"
)

// claimed tells the queue of a lock ten thousand times within a second that the lock is reserved
// for its first waiter, which polls whenever it is time to. It returns how often.
func claimed(w *Waiter, now *time.Time, won bool) (polls int) {
	hash := w.ID().Hash()
	due := now.Add(w.PollInterval(time.Hour, false, *now))
	for range 10_000 {
		*now = now.Add(100 * time.Microsecond)
		w.queues.Reserved(hash, *now)
		due = now.Add(min(due.Sub(*now), w.PollInterval(time.Hour, false, *now)))
		if !w.State().PollNow && now.Before(due) {
			continue
		}
		polls++
		w.BeginPoll(*now)
		due = now.Add(w.PollInterval(time.Hour, false, *now))
		if won {
			w.queues.lineOf(w.ID()).claims = claims{} // as a grant does
		}
	}
	return polls
}

// However often others say that a lock is reserved for its waiter, it is looked at ever more rarely
// if that is wrong, and each time if it is true.
func TestWrongClaimsAreDoubted(t *testing.T) {
	now := time.Now()
	qs := New(&background.Ways{})
	w, _ := qs.Join(script.Request{Key: "job", Connection: "c", Number: "1"}, names.Identity{}, 0, now)
	if polls := claimed(w, &now, false); polls < 1000/64 || polls > 30 {
		t.Errorf("%d polls in a second for wrong claims", polls)
	}
	if polls := claimed(w, &now, true); polls < 9000 {
		t.Errorf("%d polls in a second for true ones", polls)
	}
	// A claim that comes while they are doubted is looked at before the next poll would be.
	claimed(w, &now, false)
	w.BeginPoll(now.Add(time.Second))
	now = now.Add(2 * time.Second)
	qs.Reserved(w.ID().Hash(), now)
	if !w.State().PollNow {
		t.Error("a claim is not believed after a quiet second")
	}
	w.BeginPoll(now)
	qs.Reserved(w.ID().Hash(), now)
	if pause := w.PollInterval(time.Hour, false, now); pause > maxDoubt+time.Millisecond ||
		w.State().PollNow {
		t.Errorf("it is looked at after %v", pause)
	}
}

// The turn of the waiters here goes on when another proxy makes a claim.
func TestAClaimGivesNoTurn(t *testing.T) {
	now := time.Now()
	qs := New(&background.Ways{})
	for i := range 3 {
		qs.Join(script.Request{Key: "job", Connection: fmt.Sprint("c", i), Number: "1"},
			names.Identity{}, 0, now)
	}
	id := names.Lock{Key: "job"}
	offer := qs.Of(id).Offer(names.Identity{}, true, now)
	offer.End(Released{Done: true, Token: 1, Given: 1}, now)
	qs.Reserved(id.Hash(), now)
	if kind := qs.Of(id).Offer(names.Identity{}, true, now).Kind; kind != "next" {
		t.Errorf("the second of three is offered the lock as %q", kind)
	}
}

// A reservation is given back for a lock for which a client has waited until lately, once, and as
// that client; not for what somebody makes up.
func TestReservationsOfWaitersThatHaveLeft(t *testing.T) {
	now, as := time.Now(), names.Identity{User: "app", DB: 3}
	qs := New(&background.Ways{})
	wait := func(key string) names.Lock {
		w, _ := qs.Join(script.Request{Key: key, Connection: "c", Number: "1"}, as, 0, now)
		w.End(nil)
		return w.ID()
	}
	id := wait("job")
	for db := range 16 {
		if _, _, left := qs.Reserved(names.Lock{DB: db, Key: "other"}.Hash(), now); left {
			t.Errorf("nobody has waited in database %d", db)
		}
	}
	if lock, got, left := qs.Reserved(id.Hash(), now); !left || got != as || lock != id {
		t.Errorf("left %v, as %v", left, got)
	}
	if _, _, left := qs.Reserved(id.Hash(), now); left {
		t.Error("it is given back twice")
	}
	if _, _, left := qs.Reserved(wait(strings.Repeat("x", maxLeftName+1)).Hash(), now); left {
		t.Error("a long name is remembered")
	}
	if _, _, left := qs.Reserved(wait(strings.Repeat("x", maxLeftName)).Hash(), now); !left {
		t.Error("one as long as allowed is not")
	}
	first := wait("first")
	for i := range maxLeft {
		wait(fmt.Sprint(i))
	}
	if _, _, left := qs.Reserved(first.Hash(), now); left || len(qs.byHash) > maxLeft {
		t.Errorf("%d locks are remembered, and the first of %d more: %v", len(qs.byHash), maxLeft, left)
	}
}

// A lock that clients wait for again is found, however many others were left since they first did.
// When they leave again, it is the last one.
func TestAQueueThatWasLeftIsInUseAgain(t *testing.T) {
	now, qs := time.Now(), New(&background.Ways{})
	join := func(key string) *Waiter {
		r := script.Request{Key: key, Connection: "c", Number: "1"}
		w, _ := qs.Join(r, names.Identity{}, 0, now)
		return w
	}
	join("job").End(nil)
	w := join("job")
	for i := range maxLeft {
		join(fmt.Sprint(i)).End(nil)
	}
	if _, _, left := qs.Reserved(w.ID().Hash(), now); left || !w.State().PollNow {
		t.Errorf("left %v, %+v", left, w.State())
	}
	w.End(nil)
	for i := range maxLeft - 1 {
		join(fmt.Sprint(i)).End(nil)
	}
	if _, _, left := qs.Reserved(w.ID().Hash(), now); !left {
		t.Error("it is not remembered as the last one")
	}
	if len(qs.byHash) != maxLeft || qs.left.Len() != maxLeft {
		t.Errorf("%d are remembered, %d as left", len(qs.byHash), qs.left.Len())
	}
}

// If two locks have the same hash, the queue of the second does not end that of the first.
func TestLocksWithTheSameHash(t *testing.T) {
	now, qs := time.Now(), New(&background.Ways{})
	join := func(key string) *Waiter {
		r := script.Request{Key: key, Connection: key, Number: "1"}
		w, _ := qs.Join(r, names.Identity{}, 0, now)
		return w
	}
	first, hash := join("first"), names.Lock{Key: "second"}.Hash()
	line := qs.of[first.ID()]
	line.hash, qs.byHash[hash] = hash, line
	second := join("second")
	if _, _, left := qs.Reserved(hash, now); left || !second.State().PollNow {
		t.Errorf("left %v, %+v", left, second.State())
	}
	first.End(nil)
	if !second.State().First {
		t.Errorf("%+v", second.State())
	}
	second.End(nil)
	if qs.left.Len() != 2 || qs.lines != 0 {
		t.Errorf("%d were left, %d are in use", qs.left.Len(), qs.lines)
	}
}
