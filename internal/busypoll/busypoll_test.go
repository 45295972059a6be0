package busypoll

import (
	"sync/atomic"
	"testing"
	"time"
)

// After each time in vain one looks half as often, down to once in 64 times, and after one that wasn't as often as at first.
func TestHope(t *testing.T) {
	var h hope
	until := func() (n int) {
		for n = 1; !h.justified(); n++ {
		}
		return n
	}
	for _, want := range []int{1, 2, 4, 8, 16, 32, 64, 64, 64} {
		if got := until(); got != want {
			t.Fatalf("it looks once in %d times, not in %d", got, want)
		}
		h.learn(false)
	}
	until()
	h.learn(true)
	for range 3 {
		if got := until(); got != 1 {
			t.Errorf("after it has found something it looks once in %d times", got)
		}
	}
	h.learn(false)
	if got := until(); got != 2 {
		t.Errorf("after one time in vain it looks once in %d times", got)
	}
}

// It looks from Stir until something has come or the window is over, and otherwise not at all.
func TestLooks(t *testing.T) {
	var polls atomic.Int64
	var ready atomic.Bool
	p := start(20*time.Millisecond, func() bool { polls.Add(1); return ready.Load() }, func() {})
	defer p.Stop()
	rests := func() {
		t.Helper()
		for end := time.Now().Add(5 * time.Second); !p.resting.Load(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it never rests")
			}
		}
	}
	time.Sleep(20 * time.Millisecond)
	if n := polls.Load(); n != 0 {
		t.Fatalf("it has looked %d times before anything came", n)
	}
	began := time.Now()
	p.Stir()
	p.Stir() // while it looks already
	rests()
	if took := time.Since(began); took < 20*time.Millisecond || p.hope.misses.Load() != 1 {
		t.Errorf("it has looked for %v, %d misses", took, p.hope.misses.Load())
	}
	ready.Store(true)
	before := polls.Load()
	p.Stir() // left out
	p.Stir()
	rests()
	if n := polls.Load() - before; n != 1 || p.hope.misses.Load() != 0 {
		t.Errorf("it has looked %d times when something was there, %d misses", n, p.hope.misses.Load())
	}
}

// Stop ends it while it looks, and does nothing to none.
func TestStop(t *testing.T) {
	p := start(30*time.Millisecond, func() bool { return false }, func() {})
	p.Stir()
	p.Stop()
	p.Stir() // nobody hears it
	p = nil
	p.Stir()
	p.Stop()
	if Start(0) != nil {
		t.Error("no window, and yet it looks")
	}
}
