//go:build linux

package check_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/history"
)

// owned changes an operation to one of an owner at a lock.
func owned(owner, key string) func(*history.Op) {
	return func(o *history.Op) { o.Owner, o.Key, o.Wait = owner, key, true }
}

// answered is a wait that was answered with an error.
func answered(text string) func(*history.Op) {
	return func(o *history.Op) { o.Outcome, o.Result, o.Got = history.Refused, 0, text }
}

// A DEADLOCK is right only if each owner that it names can have waited while the next had the lock;
// and two owners that wait for each other are told.
func TestDeadlocks(t *testing.T) {
	const cycle = `DEADLOCK "ben" waits for "a", held by "anna", who waits for "b", held by "ben"` +
		`: the lock was not acquired; release what others wait for, and ask again`
	annaHasA := with(took(1, 0, 10, 10, 60000), owned("anna", "a"))
	benHasB := with(took(2, 20, 30, 20, 60000), owned("ben", "b"))
	annaWaits := with(took(1, 100, 900, 21, 60000), owned("anna", "b"))
	benReleases := with(did(2, history.Unlock, 700, 800, 20, 1), owned("ben", "b"))
	ben := func(from, to int64, text string) history.Op {
		return with(took(2, from, to, 0, 60000), owned("ben", "a"), answered(text))
	}
	told := ben(200, 600, cycle)
	unknown := func(o *history.Op) { o.Outcome, o.Result, o.Return = history.Unknown, 0, 0 }
	for name, one := range map[string]struct {
		wrong int
		ops   []history.Op
	}{
		"a cycle":            {0, []history.Op{annaHasA, benHasB, annaWaits, told, benReleases}},
		"perhaps a cycle":    {0, []history.Op{with(annaHasA, unknown), benHasB, annaWaits, told}},
		"nobody has the one": {1, []history.Op{benHasB, annaWaits, told}},
		"nobody waits":       {1, []history.Op{annaHasA, benHasB, told}},
		"another waits": {1, []history.Op{annaHasA, benHasB,
			with(annaWaits, owned("carl", "b")), told}},
		"it was released before": {1, []history.Op{annaHasA, benHasB, annaWaits,
			with(did(1, history.Unlock, 110, 150, 10, 1), owned("anna", "a")), told}},
		"its release was lost with the data": {0, []history.Op{annaHasA, benHasB, annaWaits,
			with(did(1, history.Unlock, 110, 150, 10, 1), owned("anna", "a")), told}},
		"the wait was over": {1, []history.Op{annaHasA, benHasB,
			with(annaWaits, func(o *history.Op) { o.Return = ms(150) }), told}},
		"another's wait is refused": {1, []history.Op{annaHasA, benHasB, annaWaits,
			with(told, owned("carl", "a"))}},
		"no cycle is named": {1, []history.Op{annaHasA, benHasB, annaWaits,
			ben(200, 600, `DEADLOCK "ben" waits for "a", held by "anna": the lock was not acquired`)}},
		"not told": {1, []history.Op{annaHasA, benHasB,
			with(annaWaits, func(o *history.Op) { o.Return = ms(9000) }),
			with(took(2, 200, 8000, 0, 60000), owned("ben", "a"),
				func(o *history.Op) { o.Outcome, o.Result = history.Null, 0 })}},
	} {
		var faults []history.Fault
		if strings.Contains(name, "lost with the data") {
			faults = append(faults, fault(160, 170, history.Breaks{Writes: true}))
		}
		got, wrong := check.Check(history.History{Ops: one.ops, Faults: faults},
			check.DefaultBounds()), 0
		for _, v := range got.Violations {
			if v.Rule == "deadlock" {
				wrong++
			}
		}
		if wrong != one.wrong {
			t.Errorf("%s: %d violations of the rule, want %d: %v", name, wrong, one.wrong,
				got.Violations)
		}
	}
}
