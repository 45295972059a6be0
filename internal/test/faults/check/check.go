//go:build linux

package check

import (
	"fmt"
	"slices"
	"time"

	"lockproxy/internal/test/faults/history"
)

// Violation is a promise that was not kept.
type Violation struct {
	Rule string
	Text string
	Ops  []history.Op // the operations that show it
}

func (v Violation) String() string { return v.Rule + ": " + v.Text }

// Bounds are the tolerances of the rules.
type Bounds struct {
	// how long two leases can seem to overlap: times are in whole milliseconds
	Lease  time.Duration
	Notice time.Duration // how late a holder can hear that its session lock is lost
	// how much earlier a waiter must come to be sure of its place in the queue
	Arrival time.Duration
	Idle    time.Duration // how long a lock can be unheld while a client waits for it
	Recover time.Duration // how long the effects of a fault of the service can last after it
	Grant   time.Duration // how long the hand-over of a free lock can take
	Vanish  time.Duration // how long a client on a vanished machine can keep a short, renewed lock
	Leave   time.Duration // how long such a client can stay in the queue
	// Deadlock is how long two owners can wait for each other, in addition to Grant.
	Deadlock time.Duration
}

// DefaultBounds are for a small machine with other things to do.
func DefaultBounds() Bounds {
	return Bounds{Lease: 2 * time.Millisecond, Notice: 1500 * time.Millisecond,
		Arrival: 400 * time.Millisecond,
		Idle:    3 * time.Second, Recover: 3 * time.Second, Grant: 750 * time.Millisecond,
		Vanish: 14 * time.Second, Leave: 34 * time.Second, Deadlock: 2 * time.Second}
}

// Report is what the checker found.
type Report struct {
	Violations []Violation
	Undecided  []string // what porcupine could not decide in its time
	Checked    map[string]int
	Longest    time.Duration // the longest hand-over of a free lock, by the rule late
}

// checker holds one history, split by lock.
type checker struct {
	bounds Bounds
	faults []history.Fault
	ops    []history.Op            // by Call
	locks  map[string][]history.Op // of each lock, by Call
	beats  map[int]*beats          // by proxy
	holds  map[string][]hold       // of each lock, once known
	taken  map[string][]hold       // likewise
	places map[string][]place      // likewise
	shares map[int]proxyShare      // by proxy
	over   map[int]int64           // of each fault, when the service has recovered from it
	report Report
}

// Check judges a history.
func Check(h history.History, bounds Bounds) Report {
	c := &checker{bounds: bounds, faults: h.Faults, ops: slices.Clone(h.Ops),
		locks: map[string][]history.Op{}, holds: map[string][]hold{}, taken: map[string][]hold{},
		places: map[string][]place{},
		shares: map[int]proxyShare{}}
	c.report.Checked = map[string]int{}
	sortByCall(c.ops)
	c.beats, c.over = beatsOf(c.ops), map[int]int64{}
	for i, f := range c.faults {
		c.over[i] = c.after(f.To, bounds.Recover)
	}
	for _, o := range c.ops {
		switch o.Kind {
		case history.Echo, history.Push, history.List, history.Beat, history.Unblock, history.Login,
			history.Accept, history.Reject:
		default:
			c.locks[o.Key] = append(c.locks[o.Key], o)
		}
	}
	c.answers()
	c.writes()
	c.deadlocks()
	c.unblocked()
	c.logins()
	for key, ops := range c.locks {
		grants := grantsOf(ops)
		c.tokens(key, ops)
		c.stale(key, ops, grants)
		c.exclusion(key, ops, grants)
		c.fifo(key, ops)
		c.order(key, ops)
		c.idle(key, ops)
		c.turns(key, ops)
		c.overtaken(key, ops)
		c.owner(key, ops, grants)
		c.all(ops, grants)
		c.fence(key, ops)
	}
	for proxy, s := range c.shares {
		c.share("all locks", proxy, s)
	}
	return c.report
}

func (c *checker) violated(rule string, ops []history.Op, format string, args ...any) {
	const enough = 20 // per rule: one bug mostly shows more than once
	n := 0
	for _, v := range c.report.Violations {
		if v.Rule == rule {
			n++
		}
	}
	if n < enough {
		c.report.Violations = append(c.report.Violations,
			Violation{rule, fmt.Sprintf(format, args...), ops})
	}
}

func (c *checker) checked(rule string) { c.report.Checked[rule]++ }

// broken reports whether a fault of a kind fell between two times.
func (c *checker) broken(from, to int64, is func(history.Breaks) bool) bool {
	return slices.ContainsFunc(c.faults, func(f history.Fault) bool {
		return is(f.Breaks) && f.From <= to && f.To >= from
	})
}

// recovering reports whether a fault of a kind, or its effects, fell between two times.
func (c *checker) recovering(from, to int64, is func(history.Breaks) bool) bool {
	for i, f := range c.faults {
		if is(f.Breaks) && f.From <= to && c.over[i] >= from {
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
func breaksListing(b history.Breaks) bool { return b.Listing }

// answers checks each operation by itself.
func (c *checker) answers() {
	for _, o := range c.ops {
		switch {
		case o.Outcome == history.Garbled:
			c.violated("answer", []history.Op{o}, "client %d asked %s %s and wanted %q, got %q",
				o.Client, o.Kind, o.Key, o.Want, o.Got)
		case o.Kind == history.Probe && o.Outcome != history.OK &&
			c.stalled(o.Call, max(o.Return, o.Left)) < c.bounds.Idle.Nanoseconds():
			c.violated("service", []history.Op{o},
				"lock %s can't be acquired though all is well: %q %s", o.Key, o.Outcome, o.Got)
		}
		c.checked("answer")
	}
}
