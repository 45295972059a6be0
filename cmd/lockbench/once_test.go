package main

import (
	"strings"
	"testing"
	"time"
)

func TestOnceTables(t *testing.T) {
	j := &making{clients: 3, results: make([][]*made, len(makeWays))}
	for i := range j.results {
		j.results[i] = []*made{{times: 1, waits: []time.Duration{time.Millisecond,
			2 * time.Millisecond, 6 * time.Millisecond}, used: usage{commands: 7}}}
	}
	got := j.sections()[0].markdown("")
	for _, way := range makeWays {
		if want := "| " + way.name + " | 1 | 3 | 2 | 6 | 7 |\n"; !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	hits := &hitting{results: [][]float64{{100}, {80}, {40}, {20}}}
	got = hits.sections()[0].markdown("")
	if want := "| ONCE | 40 | 0.50 | 0.40 |\n"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// Each way that needs no lockproxy gives all its clients the value, which one of them has made.
func TestWaysToMakeAValue(t *testing.T) {
	b, _ := liveBench(t)
	for i, way := range makeWays {
		if !way.direct {
			continue
		}
		if _, err := b.monitor.do("FLUSHALL"); err != nil {
			t.Fatal(err)
		}
		j := &making{clients: 5, results: make([][]*made, len(makeWays))}
		if err := j.measure(b, i); err != nil {
			t.Fatalf("%s: %v", way.name, err)
		}
		if m := j.results[i][0]; m.times != 1 || m.waits[0] <= 0 || m.used.commands < 5 {
			t.Errorf("%s: %+v", way.name, m)
		}
	}
}
