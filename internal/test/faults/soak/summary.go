//go:build linux

package soak

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/test/faults/history"
)

// Summary adds up rounds.
type Summary struct {
	Rounds     int
	Ops        map[string]int // by kind
	Outcomes   map[string]int
	Faults     map[string]int
	Checked    map[string]int // by rule: how often it was applied
	Undecided  int
	Violations map[string]int // by rule
	Acquired   int
	Hungup     int
	Longest    time.Duration // the longest hand-over of a free lock
}

// NewSummary is of no rounds.
func NewSummary() *Summary {
	return &Summary{Ops: map[string]int{}, Outcomes: map[string]int{}, Faults: map[string]int{},
		Checked: map[string]int{}, Violations: map[string]int{}}
}

// Add adds a round.
func (s *Summary) Add(r Result) {
	s.Rounds++
	for _, o := range r.History.Ops {
		s.Ops[asked(o)]++
		switch {
		case o.HungUp:
			s.Hungup++
		case o.Kind == history.Lost: // not an operation
		case o.Outcome == history.Unknown:
			s.Outcomes["unknown"]++
		default:
			s.Outcomes[string(o.Outcome)]++
		}
		if o.Acquired() {
			s.Acquired++
		}
	}
	for _, f := range r.History.Faults {
		s.Faults[f.Kind]++
	}
	for rule, n := range r.Report.Checked {
		s.Checked[rule] += n
	}
	s.Longest = max(s.Longest, r.Report.Longest)
	s.Undecided += len(r.Report.Undecided)
	for _, v := range r.Report.Violations {
		s.Violations[v.Rule]++
	}
}

// asked is what an operation asked for, for people.
func asked(o history.Op) string {
	switch {
	case o.Place > 0 && o.Again && o.Acquired():
		return "lock, from a place"
	case o.Place > 0:
		return "lock … place"
	case o.Again:
		return "relock … exclusive"
	case o.Kind == history.Relock && o.Shared:
		return "relock … shared"
	}
	return string(o.Kind)
}

func total(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// Line is a summary in one line.
func (s *Summary) Line() string {
	return fmt.Sprintf(
		"%d rounds, %d operations (%d locks taken), %d faults, %d unknown outcomes, %d violations",
		s.Rounds, total(s.Ops), s.Acquired, total(s.Faults), s.Outcomes["unknown"],
		total(s.Violations))
}

// Write writes everything.
func (s *Summary) Write(w io.Writer, ran time.Duration) {
	fmt.Fprintf(w, "%s in %v\n", s.Line(), ran.Round(time.Second))
	for _, part := range []struct {
		name   string
		counts map[string]int
	}{
		{"operations", s.Ops}, {"outcomes", s.Outcomes}, {"faults", s.Faults},
		{"rule applied", s.Checked}, {"violations", s.Violations},
	} {
		fmt.Fprintf(w, "%s:\n", part.name)
		for _, name := range slices.Sorted(maps.Keys(part.counts)) {
			fmt.Fprintf(w, "  %-22s %9d\n", name, part.counts[name])
		}
		if len(part.counts) == 0 {
			fmt.Fprintln(w, "  none")
		}
	}
	fmt.Fprintf(w,
		"clients that died or disconnected during a request: %d\n"+
			"locks that porcupine could not decide in time: %d\n"+
			"longest wait for a free lock that no fault excuses: %v\n",
		s.Hungup, s.Undecided, s.Longest.Round(time.Millisecond))
}

// Describe is a violation for people, with the times of its operations and of the faults around
// them.
func (r Result) Describe() string {
	var text strings.Builder
	for _, v := range r.Report.Violations {
		fmt.Fprintf(&text, "VIOLATION in round %d: %s\n", r.Plan.Round, v)
		if len(v.Ops) > 6 || len(r.History.Ops) == 0 {
			continue
		}
		start := r.History.Ops[0].Call
		for _, o := range v.Ops {
			fmt.Fprintf(&text, "    %s to %s: client %d at proxy %d: %s %s token %d: %s %d %s\n",
				history.Seconds(o.Call, start), history.Seconds(o.Return, start),
				o.Client, o.Proxy, o.Kind, o.Key, o.Token, o.Outcome, o.Result, o.Got)
		}
	}
	if len(r.Report.Violations) > 0 && len(r.History.Ops) > 0 {
		start := r.History.Ops[0].Call
		for _, f := range r.History.Faults {
			fmt.Fprintf(&text, "    fault %s to %s: %s (%s) %s\n", history.Seconds(f.From, start),
				history.Seconds(f.To, start), f.Kind, f.Target, f.Detail)
		}
	}
	return text.String()
}
