package queue

import (
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// Where foreign clients compete, a release leaves the lock to them. The turns that they have had
// more are made up for by as many releases that hand the lock over.
func TestForeignTurnsAreMadeUpFor(t *testing.T) {
	now := time.Unix(1e9, 0)
	qs, list := line(1, now)
	q := qs.Of(list[0].ID())
	q.SawForeign(true, now)
	q.SawForeign(true, now)
	for i, want := range []string{"fair", "fair", "free", "free"} {
		offer := q.Offer(names.Identity{}, true, now)
		if offer.Kind != want {
			t.Errorf("release %d offers %q, want %q", i, offer.Kind, want)
		}
		offer.End(Released{}, now)
	}
}

// The turn of foreign clients at a lock that was left free is theirs although a missing key is
// tracked: the first waiter polls behind it.
func TestATrackedKeyIsMissingInTheirTurn(t *testing.T) {
	now := time.Unix(1e9, 0)
	qs, list := line(1, now)
	w := list[0]
	q := qs.Of(w.ID())
	q.SawForeign(false, now)
	q.Offer(names.Identity{}, true, now).End(Released{}, now)
	w.pollNow = false
	if q.KeyTracked(true, now); w.State().PollNow {
		t.Error("it polls at once, in their turn")
	}
	if q.KeyTracked(true, now.Add(minForeignPoll)); !w.State().PollNow {
		t.Error("it does not poll behind their turn")
	}
}

// A release gives a waiter the lock while its poll is under way, which finds that it is a foreign
// client's: the waiter has it, and no turn of theirs is counted.
func TestAPollBehindAGrantFindsAForeignLock(t *testing.T) {
	now := time.Unix(1e9, 0)
	qs, list := line(2, now)
	w := list[0]
	qs.lineOf(w.ID()).grant(w, 7)
	if !w.EndPoll(script.Attempt{Foreign: true}, now) || qs.Of(w.ID()).ForeignCompete(now) {
		t.Error("the waiter does not have the lock, or they have had a turn")
	}
}
