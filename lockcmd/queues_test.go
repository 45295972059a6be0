package lockcmd

import "testing"

// A release has given the last waiter of a queue the lock, and it has not ended yet. An UNLOCKALL
// finds nobody there.
func TestReleaseAllBehindGrant(t *testing.T) {
	qs, w := newQueues(), newWaiter(lockRequest{key: "job"}, Identity{})
	q := qs.queueLocked(w.id())
	q.join(w)
	q.grant(w, 7)
	if kind := qs.kindOfRelease(w.id()); kind != "none" {
		t.Errorf("the waiters want %q", kind)
	}
}

// UNLOCKALL leaves a gap for foreign clients now and then, as UNLOCK does.
func TestReleaseAllLeavesGap(t *testing.T) {
	qs, w := newQueues(), newWaiter(lockRequest{key: "job"}, Identity{})
	q := qs.queueLocked(w.id())
	q.join(w)
	q.grants = foreignGapGrants
	for _, want := range []string{"gap", "self"} {
		if kind := qs.kindOfRelease(w.id()); kind != want {
			t.Errorf("the waiters want %q, not %q", kind, want)
		}
	}
}
