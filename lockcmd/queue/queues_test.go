package queue

import (
	"testing"
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/background"
	"lockproxy/lockcmd/script"
)

// A release has given the last waiter of a queue the lock, and it has not ended yet. An UNLOCKALL
// finds nobody there.
func TestReleaseAllBehindGrant(t *testing.T) {
	qs := New(&background.Ways{})
	w, _ := qs.Join(script.Request{Key: "job"}, names.Identity{}, 0, time.Now())
	qs.lineOf(w.ID()).grant(w, 7)
	if offer := qs.Of(w.ID()).Offer(Nobody, true, time.Now()); offer.Kind != "none" {
		t.Errorf("the waiters want %q", offer.Kind)
	}
}

// UNLOCKALL leaves a gap for foreign clients now and then, as UNLOCK does.
func TestReleaseAllLeavesGap(t *testing.T) {
	qs := New(&background.Ways{})
	w, _ := qs.Join(script.Request{Key: "job"}, names.Identity{}, 0, time.Now())
	qs.lineOf(w.ID()).grants = foreignGapGrants
	for _, want := range []string{"gap", "self"} {
		if offer := qs.Of(w.ID()).Offer(Nobody, true, time.Now()); offer.Kind != want {
			t.Errorf("the waiters want %q, not %q", offer.Kind, want)
		}
	}
}

// How long clients have waited is known without looking at each, as they come and leave.
func TestWaited(t *testing.T) {
	qs, now := New(&background.Ways{}), time.Unix(1e9, 0)
	join := func(key string) *Waiter {
		r := script.Request{Key: key, Connection: key}
		w, _ := qs.Join(r, names.Identity{}, 0, now)
		now = now.Add(time.Minute)
		return w
	}
	check := func(waiters, queues int, oldest, sum time.Duration) {
		t.Helper()
		if got := qs.Totals(now); got != (Totals{waiters, queues, oldest, sum}) {
			t.Errorf("%+v", got)
		}
	}
	check(0, 0, 0, 0)
	first := join("a")
	join("b")
	last := join("a")
	check(3, 2, 3*time.Minute, 6*time.Minute)
	first.End(nil)
	check(2, 2, 2*time.Minute, 3*time.Minute)
	last.End(nil)
	check(1, 1, 2*time.Minute, 2*time.Minute)
	g := qs.JoinAll([]script.Request{{Key: "b", Connection: "all"}, {Key: "c", Connection: "all"}},
		names.Identity{}, 0, now)
	now = now.Add(time.Minute)
	check(2, 2, 3*time.Minute, 4*time.Minute) // of which the LOCKALL is one
	g.End(nil)
	check(1, 1, 3*time.Minute, 3*time.Minute)
}

// Until a connection is subscribed, others that release a lock must not wait for this proxy to hear
// of it.
func TestNothingIsHeardBeforeASubscription(t *testing.T) {
	qs := New(&background.Ways{})
	if how := qs.WaitsAs("job", false, false); how != "p0" {
		t.Errorf("it waits as %s", how)
	}
	hears := true
	qs.Hears(func(key string) bool { return hears && key == "job" })
	if how := qs.WaitsAs("job", false, false); how != "0" {
		t.Errorf("with a subscription it waits as %s", how)
	}
	hears = false
	if how := qs.WaitsAs("job", false, false); how != "p0" {
		t.Errorf("without one it waits as %s", how)
	}
}

// A check fails for a waiter that a release has given the lock meanwhile. Another waiter has come
// and left since: so the queue is gone.
func TestCheckFailsBehindGrant(t *testing.T) {
	r := script.Request{Key: "job", Connection: "c", Number: "1"}
	qs := New(&background.Ways{})
	w, _ := qs.Join(r, names.Identity{}, 0, time.Now())
	qs.lineOf(w.ID()).grant(w, 7)
	other, _ := qs.Join(r, names.Identity{}, 0, time.Now())
	other.End(nil)
	if pause := w.PollAfter(script.ServerError("LOADING")); pause <= 0 || w.state != granted {
		t.Errorf("polls after %v, state %d", pause, w.state)
	}
}

// A waiter that must poll and leaves first passes that on to the next one, unless it was given the
// lock.
func TestLeavePassesPollOn(t *testing.T) {
	for _, state := range []waitState{waiting, left, granted} {
		q := &waitQueue{}
		first := newWait(names.Identity{}, script.Request{}).Lead
		next := newWait(names.Identity{}, script.Request{}).Lead
		q.join(first)
		q.join(next)
		q.pollNow()
		first.state = state
		q.leave(first)
		if want := state != granted; next.pollNow != want || !next.woken.Load() {
			t.Errorf("state %d: the next one polls: %v, want %v; is woken: %v",
				state, next.pollNow, want, next.woken.Load())
		}
	}
}

// A request for a lock knows since when the first LOCKALL that the upstream knows of waits for it,
// and a waiter knows which LOCKALL is in front of it, as LOCKALLs come and leave.
func TestLockAllsInAQueue(t *testing.T) {
	qs, now := New(&background.Ways{}), time.Unix(1e9, 0)
	join := func(connection string) *Waiter {
		r := script.Request{Key: "job", Connection: connection, Number: "1"}
		w, _ := qs.Join(r, names.Identity{}, 0, now)
		return w
	}
	joinAll := func(connection string) *Wait {
		return qs.JoinAll([]script.Request{
			{Key: "job", Connection: connection, Number: "1"},
			{Key: "other", Connection: connection, Number: "1"},
		}, names.Identity{}, 0, now)
	}
	lead := join("lead")
	check := func(what string, w *Waiter, since int64, behind string) {
		t.Helper()
		if _, _, got := qs.Of(w.ID()).BeforeTry(now); got != since {
			t.Errorf("%s: since %d, want %d", what, got, since)
		}
		if list, ok := w.Standings(); !ok || list[0].Behind != behind {
			t.Errorf("%s: %+v, want behind %q", what, list, behind)
		}
	}
	check("none has come", lead, 0, "")
	first, second := joinAll("first"), joinAll("second")
	last := join("last")
	check("two have come", last, 0, "second/1")
	second.Told(second.Places(), 2000)
	check("the second is known", last, 2000, "second/1")
	first.Told(first.Places(), 1000)
	check("both are known", last, 1000, "second/1")
	check("both are known", lead, 1000, "")
	second.End(nil)
	check("the second has left", last, 1000, "first/1")
	first.End(nil)
	check("both have left", last, 0, "")
}

// A value that was read is given to those who have waited since before it was asked for, and to
// nobody who has come since: a DEL that it knows of may be later than what was read.
func TestValueIsForThoseWhoWaitedBefore(t *testing.T) {
	qs, now := New(&background.Ways{}), time.Unix(1e9, 0)
	join := func(as string, ago time.Duration) *Waiter {
		r := script.Request{Key: "claim", Once: true, Value: "page", Connection: as}
		w, _ := qs.Join(r, names.Identity{}, 0, now.Add(-ago))
		return w
	}
	first, before := join("first", 2*time.Minute), join("before", time.Minute)
	since := join("since", -time.Minute)
	value := "text"
	first.Serve(&value, now)
	for w, want := range map[*Waiter]bool{first: true, before: true, since: false} {
		if got := w.state == served; got != want {
			t.Errorf("%s has the value: %v", w.Connection, got)
		}
	}
}
