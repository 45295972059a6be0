package main

import (
	"testing"
	"time"
)

// A lease runs from before the question that was answered, whenever the answer comes, and leaves
// time to end the command.
func TestLease(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	l := newLease(12*time.Second, start)
	check := func(step string, until, next, killBy, endBy float64) {
		t.Helper()
		if got := l.endBy(10 * time.Second); !l.until.Equal(at(until)) || !l.next.Equal(at(next)) ||
			!l.killBy().Equal(at(killBy)) || !got.Equal(at(endBy)) {
			t.Errorf("%s: until %v, next %v, kill by %v, end by %v", step, l.until.Sub(start),
				l.next.Sub(start), l.killBy().Sub(start), got.Sub(start))
		}
	}
	check("new", 12, 3, 11.75, 7.75)
	l.asked = at(3)
	l.renewed(at(3)) // though answered much later
	check("renewed", 15, 6, 14.75, 10.75)
	l.asked = at(6)
	l.failed(at(7))
	check("failed", 15, 7.6, 14.75, 10.75)
	if !l.asked.IsZero() {
		t.Error("still waits for the answer")
	}
	if got := l.endBy(time.Second); !got.Equal(at(13.75)) {
		t.Errorf("with a second to end: %v", got.Sub(start))
	}
}

func TestSeconds(t *testing.T) {
	for text, want := range map[string]string{"30": "30", "0.5": "0.5", "90s": "90", "5m": "300",
		"0": "0", "0.0001": "0.001", "1.0005": "1.001", ".25": "0.25"} {
		s, err := parseSeconds(text)
		if err != nil || s.decimal() != want {
			t.Errorf("%q: %q, %v; want %q", text, s.decimal(), err, want)
		}
	}
	for _, text := range []string{"", "x", "1e3", "NaN", "inf", "5 m"} {
		if s, err := parseSeconds(text); err == nil {
			t.Errorf("%q is %v", text, time.Duration(s))
		}
	}
}
