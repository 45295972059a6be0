package main

import (
	"testing"
	"time"
)

// A wait that is asked for again is shorter by what has passed, and never 0, which would be forever;
// forever stays forever. A proxy may be away for as long as it may at the start, each time again.
func TestAsking(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	wait := func(s float64) *seconds { w := seconds(s * float64(time.Second)); return &w }
	for _, c := range []struct {
		wait, after float64
		rest        string
	}{
		{60, 0, "60"}, {60, 12.5, "47.5"}, {60, 59.9995, "0.001"}, {60, 60, "0.001"},
		{60, 99, "0.001"}, {0, 0, "0"}, {0, 1e6, "0"},
	} {
		rest := newAsking(30*time.Second, wait(c.wait), start).rest(at(c.after))
		if got := rest.decimal(); got != c.rest {
			t.Errorf("--wait %v after %v s: WAIT %s, want %s", c.wait, c.after, got, c.rest)
		}
	}

	for _, w := range []*seconds{nil, wait(0), wait(5), wait(1e6)} {
		a := newAsking(30*time.Second, w, start)
		if got := a.connectBy().Add(a.explainWithin()); !got.Equal(at(30)) {
			t.Errorf("the first connection and its explanation last until %v", got.Sub(start))
		}
		for _, step := range []struct {
			reached, failed float64
			again           bool
			why             string
		}{
			{0, 1, true, "not reached yet"},
			{0, 23, true, "not reached for 23 s"},
			{23.1, 23.2, true, "lost at once"},
			{0, 24, false, "reached for a moment in 24 s"},
			{26, 1000, true, "lost after a long wait"},
			{0, 1023, true, "away for 23 s"},
			{0, 1024, false, "away for 24 s"},
		} {
			if step.reached > 0 {
				a.reached(at(step.reached))
			}
			if _, again := a.failed(at(step.failed)); again != step.again {
				t.Errorf("%s: asks again: %v", step.why, again)
			}
		}
	}
}
