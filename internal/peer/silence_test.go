package peer

import (
	"testing"
	"time"
)

// The silence starts when a check first finds that the peer owes something, not when the peer last
// sent something. It starts again whenever anything arrives from it.
func TestSilence(t *testing.T) {
	start := time.Now()
	const owes, owesNothing = true, false
	var s silence
	for _, check := range []struct {
		at, silent time.Duration // since start; how long ago
		owes       bool
		want       time.Duration
	}{
		{0, time.Hour, owesNothing, 0},
		{10 * time.Second, time.Hour, owes, 0},
		{12 * time.Second, time.Hour, owes, 2 * time.Second},
		{15 * time.Second, time.Hour, owes, 5 * time.Second},
		{20 * time.Second, time.Second, owes, 0}, // it has answered, and owes again
		{23 * time.Second, 4 * time.Second, owes, 3 * time.Second},
		{24 * time.Second, 5 * time.Second, owesNothing, 0},
		{30 * time.Second, 11 * time.Second, owes, 0},
		{31 * time.Second, 12 * time.Second, owes, time.Second},
	} {
		if got := s.update(start.Add(check.at),
			state{owes: check.owes, silent: check.silent}); got != check.want {
			t.Errorf("at %v: silent for %v, want %v", check.at, got, check.want)
		}
	}
}

// Keepalive gives up after the time that it is given.
func TestKeepAlive(t *testing.T) {
	for _, within := range []time.Duration{10 * time.Second, 17 * time.Second, 25 * time.Second,
		30 * time.Second, time.Minute} {
		k := KeepAlive(within)
		if got := k.Idle + time.Duration(k.Count)*k.Interval; !k.Enable || got != within {
			t.Errorf("%v: %+v gives up after %v", within, k, got)
		}
	}
}
