//go:build linux

// Package check judges histories of a lock service: whether what clients saw can be what was promised.
//
// It knows no more than the clients did. A lock is its holder's, as far as he may know, from the moment he has read its token
// until he begins to release it, and no longer than its timeout counted from before he asked. The rules:
//
//   - exclusion: the times of two holders of a lock don't overlap
//   - tokens: whoever began to ask after another had been given a lock has a greater token; no token is given twice
//   - stale: what names a token that somebody has been given a greater one since is refused
//   - lost: nobody is told that his lock is gone while by the above it is his
//   - fifo: at one proxy, who began to wait well before another is served before him
//   - fence: a lock's register is linearizable, and takes writes of its holders only (by porcupine)
//   - order: no fenced write is accepted behind one with a greater token
//   - idle: no lock stays unheld for long while somebody waits for it, as it would if it were given to the dead
//   - late: a lock that is free, with somebody in line for it, is given within the time that is promised
//   - turns: proxies take turns: nobody is passed over again and again for those who came later elsewhere
//   - answer: every command gets its own answer and nobody else's
//   - writes: what was acknowledged is there once, what was not is there at most once, in order
//   - service: when all faults are over, every lock can be had
//
// A fault that ends a promise (history.Breaks) ends what it is about, no more; see docs/guarantees.md.
package check

import (
	"fmt"
	"slices"
	"time"

	"lockproxy/internal/faults/history"
)

// Violation is a promise that was not kept.
type Violation struct {
	Rule string
	Text string
	Ops  []history.Op // that show it
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// Bounds are how exact time is.
type Bounds struct {
	Lease   time.Duration // by how much two leases may seem to overlap: times are kept to the millisecond
	Notice  time.Duration // how long after a session lock was lost its holder may hear of it
	Arrival time.Duration // how much earlier one must have begun to wait to be sure to stand before another
	Idle    time.Duration // how long a lock for which somebody waits may go unheld
	Recover time.Duration // how long after a fault of the service that may not count yet
	Grant   time.Duration // how long a lock that is free and waited for may take to be given
	Vanish  time.Duration // how long a client whose machine has vanished may keep a short lock that is renewed for it
	Leave   time.Duration // how long it may stay in line
}

// DefaultBounds are for a small machine with other things to do.
func DefaultBounds() Bounds {
	return Bounds{Lease: 2 * time.Millisecond, Notice: 1500 * time.Millisecond, Arrival: 400 * time.Millisecond,
		Idle: 3 * time.Second, Recover: 3 * time.Second, Grant: 750 * time.Millisecond, Vanish: 14 * time.Second, Leave: 34 * time.Second}
}

// Report is what the checker found.
type Report struct {
	Violations []Violation
	Undecided  []string // what porcupine could not decide in the time it had
	Checked    map[string]int
	Longest    time.Duration // that a lock took to be given by the rule late
}

// checker is one history, taken apart.
type checker struct {
	bounds Bounds
	faults []history.Fault
	ops    []history.Op            // by Call
	locks  map[string][]history.Op // of each lock, by Call
	report Report
}

// Check judges a history.
func Check(h history.History, bounds Bounds) Report {
	c := &checker{bounds: bounds, faults: h.Faults, ops: slices.Clone(h.Ops), locks: map[string][]history.Op{}}
	c.report.Checked = map[string]int{}
	slices.SortStableFunc(c.ops, func(a, b history.Op) int { return int(a.Call - b.Call) })
	for _, o := range c.ops {
		switch o.Kind {
		case history.Echo, history.Push, history.List:
		default:
			c.locks[o.Key] = append(c.locks[o.Key], o)
		}
	}
	c.answers()
	c.writes()
	for key, ops := range c.locks {
		grants := grantsOf(ops)
		c.tokens(key, ops)
		c.stale(key, ops)
		c.exclusion(key, ops, grants)
		c.fifo(key, ops)
		c.order(key, ops)
		c.idle(key, ops)
		c.turns(key, ops)
		c.fence(key, ops)
	}
	return c.report
}

func (c *checker) violated(rule string, ops []history.Op, format string, args ...any) {
	const enough = 20 // of a kind: one bug mostly shows more than once
	n := 0
	for _, v := range c.report.Violations {
		if v.Rule == rule {
			n++
		}
	}
	if n < enough {
		c.report.Violations = append(c.report.Violations, Violation{rule, fmt.Sprintf(format, args...), ops})
	}
}

func (c *checker) checked(rule string) { c.report.Checked[rule]++ }

// broken reports whether a fault of a kind was under way, or its effects were, between two times.
func (c *checker) broken(from, to int64, is func(history.Breaks) bool, after time.Duration) bool {
	for _, f := range c.faults {
		if is(f.Breaks) && f.From <= to && f.To+after.Nanoseconds() >= from {
			return true
		}
	}
	return false
}

func breaksLeases(b history.Breaks) bool  { return b.Leases }
func breaksWrites(b history.Breaks) bool  { return b.Writes }
func breaksTokens(b history.Breaks) bool  { return b.Tokens }
func breaksArrival(b history.Breaks) bool { return b.Arrival }
func breaksService(b history.Breaks) bool { return b.Service }
func breaksOrphans(b history.Breaks) bool { return b.Orphans }

// answers are right or wrong in themselves.
func (c *checker) answers() {
	for _, o := range c.ops {
		switch {
		case o.Outcome == history.Garbled:
			c.violated("answer", []history.Op{o}, "client %d asked %s %s and wanted %q, got %q", o.Client, o.Kind, o.Key, o.Want, o.Got)
		case o.Kind == history.Probe && o.Outcome != history.OK:
			c.violated("service", []history.Op{o}, "lock %s can't be had though all is well: %q %s", o.Key, o.Outcome, o.Got)
		}
		c.checked("answer")
	}
}
