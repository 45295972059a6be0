package lockcmd

import (
	"testing"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// A release has given the last waiter of a queue the lock, and it has not ended yet. An UNLOCKALL
// finds nobody there.
func TestReleaseAllBehindGrant(t *testing.T) {
	qs, w := newQueues(), newWaiter(script.Request{Key: "job"}, names.Identity{})
	q := qs.queueLocked(w.id())
	q.join(w)
	q.grant(w, 7)
	if offer, _ := qs.offer(w.id(), noWaiter, true); offer.kind != "none" {
		t.Errorf("the waiters want %q", offer.kind)
	}
}

// UNLOCKALL leaves a gap for foreign clients now and then, as UNLOCK does.
func TestReleaseAllLeavesGap(t *testing.T) {
	qs, w := newQueues(), newWaiter(script.Request{Key: "job"}, names.Identity{})
	q := qs.queueLocked(w.id())
	q.join(w)
	q.grants = foreignGapGrants
	for _, want := range []string{"gap", "self"} {
		if offer, _ := qs.offer(w.id(), noWaiter, true); offer.kind != want {
			t.Errorf("the waiters want %q, not %q", offer.kind, want)
		}
	}
}

// Until a connection is subscribed, others that release a lock must not wait for this proxy to hear
// of it.
func TestNothingIsHeardBeforeASubscription(t *testing.T) {
	qs := newQueues()
	if how := qs.waitsAs("job", false); how != "2" {
		t.Errorf("it waits as %s", how)
	}
	w := &releaseNotifications{queues: qs}
	w.countSubscribed(1)
	if how := qs.waitsAs("job", false); how != "0" {
		t.Errorf("with a subscription it waits as %s", how)
	}
	w.countSubscribed(-1)
	if how := qs.waitsAs("job", false); how != "2" {
		t.Errorf("without one it waits as %s", how)
	}
}
