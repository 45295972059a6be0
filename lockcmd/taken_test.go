package lockcmd

import (
	"fmt"
	"testing"
	"time"
)

// However many locks a connection takes, that it holds one is known until it has released each or the last has expired.
func TestTakenLocks(t *testing.T) {
	h := &Holder{}
	if _, holds := h.Holds(); holds {
		t.Error("a new connection holds a lock")
	}
	key := func(i int) lineKey { return lineKey{0, fmt.Sprint("lock-", i)} }
	soon, later := time.Now().Add(500*time.Millisecond), time.Now().Add(time.Hour)
	h.taken.add(key(0), soon)
	h.taken.add(key(1), soon)
	h.taken.remove(key(1))
	h.taken.remove(key(2))
	if until, holds := h.Holds(); !holds || !until.Equal(soon) {
		t.Errorf("with one lock: %v, %v", until, holds)
	}
	h.taken.extend(key(0), later)
	h.taken.extend(key(1), later)
	if until, holds := h.Holds(); !holds || !until.Equal(later) {
		t.Errorf("with that lock relocked: %v, %v", until, holds)
	}
	h.taken.remove(key(0))
	if _, holds := h.Holds(); holds {
		t.Error("it holds a lock when it has released all")
	}
	for i := range 10 * maxTaken {
		h.taken.add(key(i), soon)
	}
	if len(h.taken.list) > maxTaken {
		t.Errorf("%d are remembered", len(h.taken.list))
	}
	for i := range 10 * maxTaken {
		h.taken.remove(key(i))
	}
	if until, holds := h.Holds(); !holds || !until.Equal(soon) {
		t.Errorf("beyond what is remembered one by one: %v, %v", until, holds)
	}
	time.Sleep(time.Until(soon))
	if _, holds := h.Holds(); holds {
		t.Error("it holds a lock when all have expired")
	}
}
