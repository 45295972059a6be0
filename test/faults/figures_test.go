//go:build faults && linux

package faults_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"lockproxy/internal/test/faults/history"
)

// figures are what docs/cluster.md reports of one work, or of several.
type figures struct {
	operations, lostWrites, unknown, unsent     int
	taken, refused, faults, violations, checked counts // by kind, code, name, rule and rule
	longest                                     time.Duration
}

// counts is how often there was something of each name.
type counts map[string]int

func (v verdict) figures() figures {
	f := figures{operations: len(v.h.Ops), lostWrites: v.lostWrites(), taken: v.taken(),
		refused: counts{}, faults: counts{}, violations: counts{}, checked: v.report.Checked}
	for _, fault := range v.h.Faults {
		f.faults[fault.Kind]++
	}
	for _, violation := range v.report.Violations {
		f.violations[violation.Rule]++
	}
	for _, o := range v.h.Ops {
		if !o.Wait && o.Return != 0 {
			f.longest = max(f.longest, time.Duration(o.Return-o.Call))
		}
		switch {
		case o.Kind == history.Lost || o.HungUp:
			continue
		case o.Outcome == history.Refused && strings.Contains(o.Got, "nothing was sent"):
			f.unsent++
		case o.Outcome == history.Unknown && (o.Got == "an earlier question was lost" ||
			o.Got == "an earlier question was refused"):
			continue // its client has hung up
		case o.Outcome == history.Unknown:
			f.unknown++
		case o.Outcome == history.Refused:
			code, _, _ := strings.Cut(o.Got, " ")
			f.refused[code]++
		}
	}
	return f
}

// add adds the figures of another work.
func (f *figures) add(other figures) {
	f.operations += other.operations
	f.lostWrites += other.lostWrites
	f.unknown += other.unknown
	f.unsent += other.unsent
	f.taken = f.taken.plus(other.taken)
	f.refused = f.refused.plus(other.refused)
	f.faults = f.faults.plus(other.faults)
	f.violations = f.violations.plus(other.violations)
	f.checked = f.checked.plus(other.checked)
	f.longest = max(f.longest, other.longest)
}

func (f figures) String() string {
	return fmt.Sprintf("%d operations, %d locks taken %v, %d acknowledged writes lost; %d of "+
		"unknown outcome, %d not sent, %d refused %v; the longest answer took %v; faults %v; "+
		"violations %v; rules applied %v", f.operations, f.taken.sum(), f.taken, f.lostWrites,
		f.unknown, f.unsent, f.refused.sum(), f.refused, f.longest.Round(time.Millisecond),
		f.faults, f.violations, f.checked)
}

func (c counts) sum() (n int) {
	for _, one := range c {
		n += one
	}
	return n
}

func (c counts) plus(other counts) counts {
	both := counts{}
	for _, one := range []counts{c, other} {
		for name, n := range one {
			both[name] += n
		}
	}
	return both
}

func (c counts) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, c[name]))
	}
	return "(" + strings.Join(parts, ", ") + ")"
}
