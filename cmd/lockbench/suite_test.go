package main

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestTurns(t *testing.T) {
	cases := []benchCase{{workload: "a"}, {workload: "a"}, {workload: "a"}, {workload: "b"},
		{workload: "b"}}
	for round, want := range [][]int{{0, 1, 2, 3, 4}, {4, 3, 1, 2, 0}, {2, 0, 1, 3, 4}} {
		if got := turns(cases, round); !slices.Equal(got, want) {
			t.Errorf("round %d: %v, want %v", round, got, want)
		}
	}
}

// A figure has a column, each case is measured once in a round, and those of a workload follow each
// other, or they would not be next to each other in time.
func TestSuites(t *testing.T) {
	l := &lab{files: 30000, proxies: []proxyBinary{{"before", ""}, {"after", ""}}}
	for _, s := range append(suitesNamed([]string{"all"}, false), suitesNamed([]string{"all"},
		true)...) {
		seen, last := map[string]bool{}, ""
		for _, c := range s.cases(l) {
			if name := c.workload + ", " + c.way; seen[name] {
				t.Errorf("%s: %s is measured twice", s.name, name)
			} else {
				seen[name] = true
			}
			if c.workload != last && seen["begun "+c.workload] {
				t.Errorf("%s: %s is torn apart", s.name, c.workload)
			}
			last = c.workload
			seen["begun "+c.workload] = true
		}
		for _, way := range []string{s.base, "before", "after"} {
			if way != "" && !slices.ContainsFunc(s.cases(l), func(c benchCase) bool {
				return strings.HasPrefix(c.way, way)
			}) {
				t.Errorf("%s: nothing is measured by %q", s.name, way)
			}
		}
		for name := range seen {
			if workload, ok := strings.CutPrefix(name, "begun "); ok && s.base != "" &&
				!seen[workload+", "+s.base] {
				t.Errorf("%s: %s has nothing to be compared with", s.name, workload)
			}
		}
	}
}

// Next to the idle clients the active ones find room in every proxy, however few files it may open.
func TestIdleClientsLeaveRoom(t *testing.T) {
	for _, files := range []int{1024, 20000, 1 << 20} {
		l := &lab{files: files}
		if n := l.idleClients(10000); n <= 0 || n+usualClients >= l.most(maxClients) {
			t.Errorf("%d files: %d idle clients of %d", files, n, l.most(maxClients))
		}
	}
}

func TestTable(t *testing.T) {
	s := &suite{name: "relay", title: "Title", about: "About.", base: viaDirect,
		columns: []column{{"rate", "%.0f", true}, {"p99", "%.1f", false}}}
	run := func(round int, way string, rate float64) result {
		return result{round: round, workload: "GET", way: way, figures: figures{"rate": rate}}
	}
	broken := result{round: 1, workload: "GET", way: "lockproxy", err: errors.New("it broke")}
	results := []result{run(0, viaDirect, 100), run(0, "lockproxy", 110), run(1, viaDirect, 200),
		broken, run(2, "lockproxy", 390), run(2, viaDirect, 300)}
	got := s.markdown(results)
	for _, want := range []string{
		"\n## Title\n\nAbout.\n\n| workload | way | rate | ÷ direct | p99 |\n",
		"| GET | direct | 200 (100–300) |  | – |\n",
		"| GET | lockproxy | 250 (110–390), 1 failed | 1.20 (1.10–1.30), 1 failed | – |\n",
		"A run failed and counts in no figure: GET, lockproxy, round 2: it broke\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	want := "relay,\"GET\",\"direct\",1,\"rate\",100\n"
	if got := s.csv(results); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 5 {
		t.Errorf("CSV:\n%s", got)
	}
}

func TestSummary(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   string
	}{
		{nil, "–"}, {[]float64{failedRun}, "–"}, {[]float64{2}, "2.0"},
		{[]float64{3, 1, 2}, "2.0 (1.0–3.0)"}, {[]float64{4, 1, 2, 3}, "2.5 (1.0–4.0)"},
		{[]float64{1, failedRun}, "1.0, 1 failed"},
	} {
		if got := summary(c.values, "%.1f"); got != c.want {
			t.Errorf("%v: %q, want %q", c.values, got, c.want)
		}
	}
}

func TestProxyBinary(t *testing.T) {
	for text, want := range map[string]proxyBinary{"./lockproxy": {viaLockproxy, "./lockproxy"},
		"old=./bin/lockproxy": {"old", "./bin/lockproxy"}} {
		var got proxyBinary
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}
