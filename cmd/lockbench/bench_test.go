package main

import (
	"fmt"
	"slices"
	"testing"
)

func TestTurns(t *testing.T) {
	for _, c := range []struct {
		n, group, round int
		want            []int
	}{
		{4, 4, 0, []int{0, 1, 2, 3}},
		{4, 4, 1, []int{1, 2, 3, 0}},
		{6, 2, 0, []int{0, 1, 2, 3, 4, 5}},
		{6, 2, 1, []int{3, 2, 5, 4, 1, 0}},
		{6, 2, 3, []int{1, 0, 3, 2, 5, 4}},
	} {
		if got := turns(c.n, c.group, c.round); !slices.Equal(got, c.want) {
			t.Errorf("%d cases in groups of %d, round %d: %v, want %v", c.n, c.group, c.round, got,
				c.want)
		}
	}
}

func TestTurnsTakeAllOnceAndKeepGroupsTogether(t *testing.T) {
	for round := range 7 {
		order := turns(12, 4, round)
		if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted,
			[]int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}) {
			t.Fatalf("round %d: %v", round, order)
		}
		for i := range order {
			if order[i]/4 != order[i/4*4]/4 {
				t.Errorf("round %d: %v tears a group apart", round, order)
			}
		}
	}
}

// Every report's groups have the same size, so that no case is left out.
func TestGroupsFit(t *testing.T) {
	for _, quick := range []bool{false, true} {
		for _, p := range partsOf((&flags{Report: "all", Quick: quick}).documents()) {
			for _, j := range p.jobs {
				if g, ok := j.(grouped); ok && len(j.cases())%g.group() != 0 {
					t.Errorf("%s: %d cases in groups of %d", j.title(), len(j.cases()), g.group())
				}
			}
		}
	}
}

func TestSteps(t *testing.T) {
	p := &part{rounds: 3, jobs: []job{newPairs(2, 1), &waiting{clients: 1}}}
	if n := p.steps(); n != 21 {
		t.Errorf("%d steps", n)
	}
}

func TestPartsAreMeasuredOnce(t *testing.T) {
	docs := (&flags{Report: "all"}).documents()
	listed := 0
	for _, d := range docs {
		listed += len(d.parts)
	}
	parts := partsOf(docs)
	if listed != len(parts)+1 {
		t.Errorf("%d parts of %d listed: pairs should be the only one in both documents",
			len(parts), listed)
	}
}

func TestAllowed(t *testing.T) {
	for _, c := range []struct{ files, perClient, want int }{
		{1 << 20, 2, 10000}, {20000, 1, 10000}, {20000, 2, 9875}, {200, 2, -25},
	} {
		if got := allowed(c.files, c.perClient, 10000, 50); got != c.want {
			t.Errorf("%d files, %d for each: %d, want %d", c.files, c.perClient, got, c.want)
		}
	}
}

func TestNames(t *testing.T) {
	for n, want := range map[int]string{1: "1 client", 50: "50 clients", 1000: "1,000 clients",
		1234567: "1,234,567 clients"} {
		if got := count(n, "client"); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int]string{64: "64 B", 1 << 10: "1 KB", 64 << 10: "64 KB"} {
		if got := inBytes(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := fmt.Sprint(workload{"GET", 1000, 16,
		1 << 10}); got != "GET, 1,000 clients, P=16, 1 KB" {
		t.Errorf("%q", got)
	}
}
