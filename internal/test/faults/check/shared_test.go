//go:build linux && !race

package check_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/history"
)

// sharedBugs are what can be wrong with a simulation.
type sharedBugs struct {
	readerNextToWriter bool // a reader is let in although a writer holds the lock
	writerNextToReader bool // a writer is let in as soon as one reader has left
	forgetsHolder      bool // a failover, which breaks no promise, makes one holder count for none
}

// simulation is readers, writers and clients of a limit that use one lock, in simulated time. Its
// history is what they saw.
type simulation struct {
	sharedBugs
	random  *rand.Rand
	now     int64 // ms
	token   int64
	clients []*simulated
	queue   []*simulated
	holding []*simulated
	forgot  *simulated
	ops     []history.Op
}

// simulated is one client.
type simulated struct {
	id    int
	lock  history.Op // under way, or held
	until int64      // ms; when it does what comes next. -1 while it waits
	holds bool
	token int64
}

const simulatedLimit = 3

func simulate(b sharedBugs, seed uint64) history.History {
	s := &simulation{sharedBugs: b, random: rand.New(rand.NewPCG(seed, 0)), token: 100}
	for i := range 9 {
		s.clients = append(s.clients, &simulated{id: i, until: int64(i)})
	}
	const failover = 3000
	for s.now = 0; s.now < 6000; s.now++ {
		for _, c := range s.clients {
			if c.until == s.now {
				s.act(c)
			}
		}
		if b.forgetsHolder && s.now >= failover && s.forgot == nil && len(s.holding) > 0 &&
			s.holding[0].lock.Limit > 0 {
			s.forgot = s.holding[0]
		}
		s.admit()
	}
	return history.History{Ops: s.ops, Faults: []history.Fault{{Kind: "failover",
		From: ms(failover), To: ms(failover + 100), Breaks: history.Breaks{Service: true}}}}
}

// act is what a client does when its time has come: it asks for the lock, or releases it.
func (s *simulation) act(c *simulated) {
	if !c.holds {
		c.lock = history.Op{Client: c.id, Kind: history.Lock, Key: "job", Call: ms(s.now),
			Wait:    true,
			Timeout: ms(60_000)}
		switch c.id % 3 {
		case 0:
			c.lock.Shared = true
		case 1:
			c.lock.Shared, c.lock.Limit = true, simulatedLimit
		}
		c.until = -1
		s.queue = append(s.queue, c)
		return
	}
	op := history.Op{Client: c.id, Key: "job", Token: c.token, Outcome: history.OK,
		Call: ms(s.now), Return: ms(s.now) + ms(1)/8}
	if s.random.IntN(2) == 0 {
		op.Kind, op.Value = history.Fence, string(rune('a'+s.random.IntN(20)))
		s.ops = append(s.ops, op)
		op.Call, op.Return = op.Return+1, op.Return+ms(1)/8
	}
	op.Kind, op.Result, op.Value = history.Unlock, 1, ""
	s.ops = append(s.ops, op)
	c.holds, c.until = false, s.now+1+s.random.Int64N(40)
	s.holding = slices.DeleteFunc(s.holding, func(h *simulated) bool { return h == c })
	if s.forgot == c {
		s.forgot = nil
	}
}

// admit gives the lock to those at the head of the queue that fit.
func (s *simulation) admit() {
	for len(s.queue) > 0 && s.fits(s.queue[0].lock) {
		c := s.queue[0]
		s.queue = s.queue[1:]
		s.token++
		c.token, c.holds = s.token, true
		c.until = s.now + 2 + s.random.Int64N(20)
		c.lock.Return, c.lock.Outcome, c.lock.Result = ms(s.now)+ms(1)/2, history.OK, c.token
		s.ops = append(s.ops, c.lock)
		s.holding = append(s.holding, c)
	}
}

func (s *simulation) fits(o history.Op) bool {
	holders := len(s.holding)
	if s.forgot != nil {
		holders--
	}
	exclusive := len(s.holding) > 0 && !s.holding[0].lock.Shared
	switch {
	case exclusive:
		return o.Shared && s.readerNextToWriter && s.random.IntN(50) == 0
	case !o.Shared:
		return holders == 0 || s.writerNextToReader && holders == 1 && s.random.IntN(20) == 0
	}
	return o.Limit == 0 || holders < o.Limit
}

// The checker, and its model by itself, find what is wrong with a shared lock, and nothing in a
// correct one.
func TestBrokenSharedLocksAreCaught(t *testing.T) {
	for _, service := range []struct {
		name string
		bugs sharedBugs
		rule string
	}{
		{"no bug", sharedBugs{}, ""},
		{"a reader next to a writer", sharedBugs{readerNextToWriter: true}, "exclusion"},
		{"a writer next to a reader", sharedBugs{writerNextToReader: true}, "exclusion"},
		{"a limit exceeded by one after a failover", sharedBugs{forgetsHolder: true}, "limit"},
	} {
		t.Run(service.name, func(t *testing.T) {
			for seed := range uint64(1) {
				report := check.Check(simulate(service.bugs, seed), check.DefaultBounds())
				found := map[string]string{}
				for _, v := range report.Violations {
					found[v.Rule] = v.Text
				}
				if service.rule == "" {
					if len(found) > 0 || len(report.Undecided) > 0 {
						t.Errorf("seed %d: %v, undecided %v", seed, found, report.Undecided)
					}
					if report.Checked["limit"] < 10 || report.Checked["exclusion"] < 100 {
						t.Errorf("seed %d: checked %v", seed, report.Checked)
					}
					continue
				}
				if found[service.rule] == "" || found["fence"] == "" {
					t.Errorf("seed %d: found only %v, undecided %v", seed, found, report.Undecided)
				}
			}
		})
	}
}

// An owner is given the token that its earlier LOCK, whose outcome nobody knows, has taken,
// although others have greater ones by now. Without such a LOCK it is a token that went back.
func TestOwnerComesBackToSharedLock(t *testing.T) {
	owned := func(o *history.Op) { o.Shared, o.Owner = true, "me" }
	shared := func(o *history.Op) { o.Shared = true }
	unknown := with(took(1, 0, 0, 0, 5000), owned)
	unknown.Outcome, unknown.Return = history.Unknown, 0
	limited := func(o history.Op) history.Op { o.Limit = 1; return o }
	other := with(took(2, 100, 110, 20, 5000), shared)
	again := with(took(3, 200, 210, 10, 5000), owned)
	for _, c := range []struct {
		ops  []history.Op
		want int
	}{
		{[]history.Op{unknown, other, again}, 0},
		{[]history.Op{other, again}, 1},
		{[]history.Op{limited(unknown), other, limited(again)}, 0}, // it was the first of them
	} {
		got := check.Check(history.History{Ops: c.ops}, check.DefaultBounds())
		if len(got.Violations) != c.want {
			t.Errorf("%d violations, want %d: %v", len(got.Violations), c.want, got.Violations)
		}
	}
}

// The data is lost, and the clock was set back: the next holders have smaller tokens than one whose
// limit they would have exceeded.
func TestLimitBeforeLostData(t *testing.T) {
	shared := func(o *history.Op) { o.Shared = true }
	limited := func(o *history.Op) { o.Shared, o.Limit = true, 1 }
	ops := []history.Op{with(took(1, 0, 10, 20, 5000), limited),
		with(did(1, history.Unlock, 100, 110, 20, 1), limited),
		with(took(2, 120, 200, 10, 5000), shared)}
	lost := fault(150, 160, history.Breaks{Leases: true, Writes: true, Tokens: true})
	for _, c := range []struct {
		faults []history.Fault
		want   bool
	}{{[]history.Fault{lost}, false}, {nil, true}} {
		got := check.Check(history.History{Ops: ops, Faults: c.faults}, check.DefaultBounds())
		if (len(got.Violations) > 0) != c.want {
			t.Errorf("faults %v: %v", c.faults, got.Violations)
		}
	}
}

// A holder of a shared lock whose time was over holds it again if the clock goes back.
func TestSharersTimeComesBack(t *testing.T) {
	ops := []history.Op{with(took(1, 0, 10, 10, 300), func(o *history.Op) { o.Shared = true }),
		with(did(1, history.Fence, 400, 450, 10, 0), fenced), did(1, history.Unlock, 700, 710, 10, 1)}
	back := fault(500, 600, history.Breaks{Service: true})
	back.Longer = ms(3000)
	for _, c := range []struct {
		faults []history.Fault
		want   int
	}{{[]history.Fault{back}, 0}, {nil, 1}} {
		got := check.Check(history.History{Ops: ops, Faults: c.faults}, check.DefaultBounds())
		if len(got.Violations) != c.want {
			t.Errorf("%d violations, want %d: %v", len(got.Violations), c.want, got.Violations)
		}
	}
}

// A LOCK by an owner can run late and extend the lease that a later one was given: a write is then
// accepted that otherwise comes too late.
func TestOwnersLockRunsLate(t *testing.T) {
	for _, shared := range []bool{false, true} {
		owned := func(o *history.Op) { o.Shared, o.Owner = shared, "me" }
		unknown := with(took(1, 0, 0, 0, 500), owned)
		unknown.Outcome, unknown.Return = history.Unknown, 0
		given := with(took(1, 100, 110, 10, 500), owned)
		write := did(1, history.Fence, 700, 710, 10, 0)
		for _, c := range []struct {
			ops  []history.Op
			want int
		}{
			{[]history.Op{unknown, given, write}, 0},
			{[]history.Op{given, write}, 1},
		} {
			got := check.Check(history.History{Ops: c.ops}, check.DefaultBounds())
			if len(got.Violations) != c.want {
				t.Errorf("shared %v: %d violations, want %d: %v", shared, len(got.Violations),
					c.want, got.Violations)
			}
		}
	}
}
