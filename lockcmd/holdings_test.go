package lockcmd

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

func TestHoldings(t *testing.T) {
	var expired atomic.Uint64
	h := newHoldings(&expired)
	at, now := lineKey{0, "a"}, time.Now()
	ends := func(p proof, token int64, want bool) {
		t.Helper()
		if _, got := h.take(at, p, token); got != want {
			t.Errorf("release by %v of %d ended it: %v", p, token, got)
		}
	}
	h.put(at, request{connection: "c1", timeout: time.Second}, 7, now)
	ends(proof{"token", "6"}, 0, false)
	ends(proof{"connection", "c2"}, 0, false)
	ends(proof{"force", ""}, 8, false)
	ends(proof{"token", "7"}, 0, true)
	ends(proof{"token", "7"}, 0, false)

	h.put(at, request{connection: "c1", timeout: time.Second}, 8, now)
	ends(proof{"connection", "c1"}, 0, true)
	h.put(at, request{connection: "c1", timeout: time.Second}, 9, now)
	ends(proof{"force", ""}, 9, true)
	if left := h.sweep(now.Add(time.Hour)); left != 0 || expired.Load() != 0 {
		t.Errorf("%d left, %d expired", left, expired.Load())
	}
}

func TestHoldingsExpire(t *testing.T) {
	var expired atomic.Uint64
	h := newHoldings(&expired)
	now := time.Now()
	h.put(lineKey{0, "short"}, request{connection: "c", timeout: time.Second}, 1, now)
	h.put(lineKey{0, "renewed"}, request{connection: "c", timeout: time.Second}, 2, now)
	h.put(lineKey{0, "owner"}, request{connection: "c", timeout: time.Minute}, 3, now)
	h.put(lineKey{0, "owner"}, request{connection: "d", timeout: time.Second}, 3, now) // never shortened
	h.put(lineKey{0, "next"}, request{connection: "c", timeout: time.Second}, 4, now)
	h.extend(lineKey{0, "renewed"}, "2", now.Add(10*time.Second))
	h.extend(lineKey{0, "short"}, "99", now.Add(10*time.Second)) // another's token
	h.put(lineKey{0, "next"}, request{connection: "d", timeout: time.Second}, 5, now.Add(2*time.Second))
	if expired.Load() != 1 {
		t.Errorf("%d expired by a successor, want 1", expired.Load())
	}
	if left := h.sweep(now.Add(1500 * time.Millisecond)); left != 4 {
		t.Errorf("%d left within the grace, want 4", left)
	}
	if left := h.sweep(now.Add(3 * time.Second)); left != 3 || expired.Load() != 2 {
		t.Errorf("%d left, %d expired", left, expired.Load())
	}
	if held, ok := h.take(lineKey{0, "owner"}, proof{"token", "3"}, 0); !ok || !held.since.Equal(now) {
		t.Errorf("held since %v, %v", held.since, ok)
	}
}

// However many locks nobody releases, they take bounded memory and are swept as others come.
func TestHoldingsAreBounded(t *testing.T) {
	var expired atomic.Uint64
	h := newHoldings(&expired)
	now := time.Now()
	for i := range 3 * holdingShards * maxHoldings {
		h.put(lineKey{0, fmt.Sprint(i)}, request{connection: "c", timeout: time.Hour}, int64(i), now)
	}
	if left := h.sweep(now); left > holdingShards*maxHoldings || left < holdingShards*maxHoldings/2 {
		t.Errorf("%d locks are followed", left)
	}
	later := now.Add(2 * time.Hour)
	for i := range holdingShards * maxHoldings {
		h.put(lineKey{1, fmt.Sprint(i)}, request{connection: "c", timeout: time.Hour}, int64(i), later)
	}
	if expired.Load() == 0 {
		t.Error("nothing has been swept without being asked for")
	}
}
