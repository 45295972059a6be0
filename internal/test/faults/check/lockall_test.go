//go:build linux

package check_test

import (
	"testing"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/history"
)

// A LOCKALL waits as long as either lock is held, and those that came later wait for it. If neither
// is held for long, somebody has forgotten it.
func TestLockAllThatWaits(t *testing.T) {
	const other = "other"
	both := func(o *history.Op) { o.Wait, o.With = true, other }
	twin := func(o *history.Op) { o.Wait, o.Key, o.With = true, other, o.Key }
	elsewhere := func(o *history.Op) { o.Key = other }
	all := took(2, 100, 5010, 20, 5000)
	behind := with(took(3, 200, 5110, 30, 5000), waited)
	released := with(did(1, history.Unlock, 4900, 4910, 10, 1), elsewhere)
	done := did(2, history.Unlock, 5050, 5060, 20, 1)
	seen := func(held history.Op, rest ...history.Op) history.History {
		return history.History{Ops: append([]history.Op{held, with(all, both), with(all, twin),
			done, with(done, elsewhere)}, rest...)}
	}
	waiting := seen(with(took(1, 0, 10, 10, 6000), elsewhere), released, behind)
	if got := check.Check(waiting, check.DefaultBounds()); len(got.Violations) > 0 {
		t.Errorf("violations though the other lock is held: %v", got.Violations)
	}
	forgotten := seen(with(took(1, 0, 10, 10, 500), elsewhere))
	got := check.Check(forgotten, check.DefaultBounds())
	for _, v := range got.Violations {
		if v.Rule == "idle" && v.Ops[0].With != "" {
			return
		}
	}
	t.Errorf("no LOCKALL is idle though neither lock is held: %v", got.Violations)
}
