//go:build linux

package check_test

import (
	"testing"

	"lockproxy/internal/test/faults/history"
)

// place makes a LOCK one that asks for a place that is kept for so many ms.
func place(keep int64) func(*history.Op) {
	return func(o *history.Op) { o.Place = ms(keep) }
}

func again(o *history.Op) { o.Again = true }

// asked is a LOCK that was answered with a place.
func asked(client int, call, back, keep int64) history.Op {
	return with(missed(client, call, back), place(keep), func(o *history.Op) { o.Wait = false })
}

// Places are waiters whose clients ask again and again: rules judge them as such, and others wait
// for them no longer than they are kept.
func TestPlaces(t *testing.T) {
	type ops = []history.Op
	type faults = []history.Fault
	held := ops{took(1, 0, 10, 10, 5000), did(1, history.Unlock, 500, 510, 10, 1)}
	after := func(more ...history.Op) ops { return append(append(ops{}, held...), more...) }
	waits := func(back int64) history.Op { return with(took(3, 200, back, 20, 500), waited) }
	left := with(asked(2, 100, 0, 2000), func(o *history.Op) {
		o.Outcome, o.HungUp, o.Left = "", true, ms(300)
	})
	lost := with(asked(2, 100, 0, 2000), func(o *history.Op) { o.Outcome = "" })
	service := fault(0, 5000, history.Breaks{Service: true})
	leases := fault(600, 610, history.Breaks{Leases: true})
	given := func(keep int64) ops {
		return ops{asked(1, 100, 110, keep), with(took(1, 1400, 1410, 20, 500), place(keep), again)}
	}
	behind := with(took(2, 1000, 1200, 10, 50), waited)
	noGrant := missed(2, 100, 1700)
	passes := took(3, 1000, 1100, 20, 500)
	reads := with(took(1, 0, 10, 10, 5000), shared)
	reader := with(took(3, 200, 1900, 20, 500), waited, shared)
	for _, c := range []struct {
		name   string
		ops    ops
		faults faults
		rule   string // "" if none objects
	}{
		{"kept for a place that nobody takes", after(asked(2, 100, 110, 2000), waits(2900)), nil, ""},
		{"kept beyond its time", after(asked(2, 100, 110, 2000), waits(3200)), nil, "late"},
		{"kept for a place of another lock", after(with(asked(2, 100, 110, 2000),
			func(o *history.Op) { o.Key = "other" }), waits(1300)), nil, "late"},
		{"kept for a place that was only in the line", after(asked(2, 100, 110, 2000), waits(1300),
			with(asked(2, 1400, 1410, 2000), again)), nil, "late"},
		{"kept for a place that may have lost its lock", after(asked(2, 100, 110, 2000),
			waits(1300), with(asked(2, 1400, 1410, 2000), again)), faults{leases}, ""},
		{"kept for a place until its client came too late", after(asked(2, 100, 110, 1200),
			waits(1400), with(asked(2, 1450, 1460, 2000), again)), nil, ""},
		{"kept for a place whose client came for it", after(asked(2, 100, 110, 2000),
			missed(3, 200, 1390), with(took(2, 1400, 1410, 15, 5000), place(2000), again)), nil, ""},
		{"kept until its client had it", after(asked(2, 100, 110, 2000),
			with(took(2, 1400, 1410, 15, 5000), place(2000), again),
			did(2, history.Unlock, 1500, 1510, 15, 1), waits(2200)), nil, ""},
		{"kept for longer than its client had it", after(asked(2, 100, 110, 2000),
			with(took(2, 1400, 1410, 15, 5000), place(2000), again),
			did(2, history.Unlock, 1500, 1510, 15, 1), waits(2400)), nil, "late"},
		{"kept for a client that left its place", after(left, waits(3700)), nil, ""},
		{"kept for long for a client that left its place", after(left, waits(4000)), nil, "late"},
		{"kept for a client that had no answer", after(lost, waits(18400)), nil, ""},
		{"kept for long for a client that had no answer", after(lost, waits(18900)), nil, "late"},
		{"a reader behind a place", ops{reads, asked(2, 100, 110, 2000),
			with(asked(2, 1500, 1510, 2000), again), with(reader, func(o *history.Op) {
				o.Return = ms(1300)
			})}, nil, ""},
		{"a reader behind a place that is over", ops{reads, asked(2, 100, 110, 500), reader}, nil,
			"late"},

		{"a place is forgotten", after(asked(2, 100, 110, 2000),
			with(asked(2, 1500, 1510, 2000), again)), nil, "late"},
		{"a place is forgotten for long", after(asked(2, 100, 110, 2000),
			with(asked(2, 2000, 2010, 2000), again), with(asked(2, 3900, 3910, 2000), again)), nil,
			"idle"},
		{"a client may have a new place", after(asked(2, 100, 110, 1000),
			with(asked(2, 1500, 1510, 2000), again)), nil, ""},
		{"a place is forgotten, the upstream silent", after(asked(2, 100, 110, 2000),
			with(asked(2, 1500, 1510, 2000), again)), faults{service}, ""},

		{"a place overtaken by a waiter", append(given(2000), behind), nil, "fifo"},
		{"a client that may have a new place, and a waiter", append(given(1200), behind), nil, ""},
		{"a place that a fault may have ended, and a waiter", append(given(2000), behind),
			faults{fault(120, 130, history.Breaks{Service: true})}, ""},
		{"a waiter overtaken by a place", ops{with(took(1, 1000, 4000, 20, 500), waited),
			asked(2, 2000, 2010, 4000), with(took(2, 2900, 3000, 10, 500), place(4000), again)}, nil,
			"fifo"},
		{"a place before a waiter", ops{with(took(1, 1000, 4000, 20, 500), waited),
			asked(2, 100, 110, 4000), with(took(2, 2900, 3000, 10, 500), place(4000), again)}, nil,
			""},

		{"given from a place while a client waits", ops{asked(3, 50, 60, 5000), noGrant,
			with(passes, place(5000), again)}, nil, ""},
		{"overtaken by a client that asks for a place", ops{noGrant, with(passes, place(5000))}, nil,
			"overtaken"},
		{"overtaken behind a place at its proxy", ops{asked(4, 50, 60, 3000), noGrant, passes}, nil,
			""},
		{"overtaken behind a place at another proxy", ops{with(asked(4, 50, 60, 200),
			func(o *history.Op) { o.Proxy = 1 }), noGrant, passes}, nil, "overtaken"},
		{"overtaken behind a place that was over", ops{asked(4, 50, 60, 100), noGrant,
			with(passes, func(o *history.Op) { o.Call, o.Return = ms(1250), ms(1260) })}, nil,
			"overtaken"},
	} {
		t.Run(c.name, func(t *testing.T) { objects(t, c.ops, c.faults, c.rule) })
	}
}

// Places count for their proxy's share of a lock, and not as clients that came later.
func TestShareOfPlaces(t *testing.T) {
	// turns are rounds in which four are given the lock, and then a client that waits at proxy 0.
	turns := func(four func(client int, since, given, token int64) []history.Op) (ops []history.Op) {
		token := int64(0)
		for since := int64(0); since < 60_000; since += 5000 {
			for i := range 4 {
				token += 2
				ops = append(ops, four(2+i, since, since+1000+int64(i)*100, token)...)
			}
			token += 2
			ops = append(ops, with(took(1, since+500, since+1510, token, 20), waited))
		}
		return ops
	}
	later := func(client int, _, given, token int64) []history.Op {
		return []history.Op{with(took(client, given, given+10, token, 20), at(1))}
	}
	placed := func(proxy int) func(client int, since, given, token int64) []history.Op {
		there := func(o *history.Op) { o.Proxy = proxy }
		return func(client int, since, given, token int64) []history.Op {
			return []history.Op{with(asked(client, since, since+10, 5000), there),
				with(took(client, given, given+10, token, 20), place(5000), again, there)}
		}
	}
	both := func(client int, since, given, token int64) []history.Op {
		return append(later(client, since, given, token),
			placed(0)(client+10, since, given+50, token+1)...)
	}
	objects(t, turns(later), nil, "share")
	objects(t, turns(placed(1)), nil, "")
	objects(t, turns(both), nil, "")
}

// A writer becomes a reader, from when it asks to, and a reader that asks for the lock alone has
// released it and has another lock.
func TestChangesOfHolders(t *testing.T) {
	type ops = []history.Op
	writes := took(1, 0, 10, 10, 5000)
	lease := func(o *history.Op) { o.Timeout = ms(5000) }
	becomes := with(did(1, history.Relock, 100, 110, 10, 1), shared, lease)
	unknown := with(becomes, func(o *history.Op) { o.Outcome, o.Return, o.Result = "", 0, 0 })
	reader := with(took(2, 200, 210, 20, 5000), shared)
	wrote := did(1, history.Fence, 300, 310, 10, 0)
	reads := with(took(1, 0, 10, 10, 5000), shared)
	gaveBack := did(1, history.Unlock, 1000, 1010, 10, 1)
	alone := with(took(1, 1000, 1010, 30, 5000), again)
	for _, c := range []struct {
		name string
		ops  ops
		rule string // "" if none objects
	}{
		{"a reader next to one that was a writer", ops{writes, becomes, reader, wrote}, ""},
		{"a reader next to one that may be one", ops{writes, unknown, reader}, ""},
		{"a reader next to a writer", ops{writes, with(becomes, func(o *history.Op) {
			o.Shared = false
		}), reader}, "exclusion"},
		{"a reader next to one that could not become one", ops{writes, with(becomes,
			func(o *history.Op) { o.Outcome = history.Refused }), reader, wrote}, "exclusion"},
		{"a reader next to one that is still a writer", ops{writes, becomes,
			with(reader, func(o *history.Op) { o.Call, o.Return = ms(20), ms(30) })}, "exclusion"},
		{"a writer next to one that became a reader", ops{writes, becomes,
			took(2, 200, 210, 20, 5000)}, "exclusion"},
		{"a writer after one that was a reader for its time", ops{writes, with(becomes,
			func(o *history.Op) { o.Timeout = ms(50) }), took(2, 200, 210, 20, 5000)}, ""},
		{"a reader loses its lock", ops{writes, becomes, with(wrote, fenced)}, "lost"},
		{"a writer's write among readers is not there", ops{writes, becomes, reader, wrote,
			{Client: 2, Kind: history.Get, Key: "job", Call: ms(400), Return: ms(410),
				Outcome: history.OK, Got: "something else"}}, "fence"},

		{"a reader becomes the writer", ops{reads, missed(3, 20, 1500), gaveBack, alone}, ""},
		{"an early LOCK while another waits", ops{reads, missed(3, 20, 1500), gaveBack,
			with(alone, func(o *history.Op) { o.Again = false })}, "overtaken"},
		{"a reader becomes the writer next to another", ops{reads, reader, gaveBack, alone},
			"exclusion"},
		{"a reader's token counts although it has another", ops{reads, gaveBack, alone,
			did(1, history.Fence, 1100, 1110, 10, 0)}, "stale"},
		{"a reader's new token is smaller", ops{with(reads, func(o *history.Op) {
			o.Result = 40
		}), gaveBack, alone}, "tokens"},
	} {
		t.Run(c.name, func(t *testing.T) { objects(t, c.ops, nil, c.rule) })
	}
}
