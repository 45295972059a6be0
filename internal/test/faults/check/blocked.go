//go:build linux

package check

import (
	"cmp"
	"slices"

	"lockproxy/internal/test/faults/history"
)

// blocked are the times at which others could keep a lock from a client that asks to share it: one
// has it alone, or as many share it as the client allows, or one waits that cannot share it with
// all: it can have come before. holds are all of the lock.
func blocked(o history.Op, ops []history.Op, holds []hold) (list []span) {
	for _, other := range ops {
		waits := other.Kind == history.Lock && other.Wait && other.Return != 0
		if waits && !(other.Shared && other.Limit == 0) && !sameRequest(o, other) {
			list = append(list, span{other.Call, other.Return})
		}
	}
	var sharing []span
	for _, h := range holds {
		switch {
		case sameRequest(o, h.op):
		case h.op.Shared:
			sharing = append(sharing, h.span)
		default:
			list = append(list, h.span)
		}
	}
	if o.Limit > 0 {
		list = append(list, crowded(sharing, o.Limit)...)
	}
	return list
}

func sameRequest(a, b history.Op) bool { return a.Client == b.Client && a.Call == b.Call }

// crowded are the times at which there are n spans or more.
func crowded(spans []span, n int) (list []span) {
	type turn struct {
		at int64
		by int
	}
	var turns []turn
	for _, s := range spans {
		turns = append(turns, turn{s.from, 1}, turn{s.to, -1})
	}
	slices.SortFunc(turns, func(a, b turn) int {
		return cmp.Or(cmp.Compare(a.at, b.at), b.by-a.by)
	})
	now, since := 0, int64(0)
	for _, t := range turns {
		if now += t.by; t.by > 0 && now == n {
			since = t.at
		} else if t.by < 0 && now == n-1 {
			list = append(list, span{since, t.at})
		}
	}
	return list
}
