//go:build linux

package check_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/history"
)

// ms is a time or a length in a history.
func ms(n int64) int64 { return n * int64(time.Millisecond) }

// took is a LOCK that was answered with a token.
func took(client int, call, back, token, timeout int64) history.Op {
	return history.Op{Client: client, Kind: history.Lock, Key: "job", Call: ms(call),
		Return: ms(back), Outcome: history.OK, Result: token, Timeout: ms(timeout)}
}

// did is an operation that names a token.
func did(client int, kind history.Kind, call, back, token, result int64) history.Op {
	return history.Op{Client: client, Kind: kind, Key: "job", Call: ms(call), Return: ms(back),
		Outcome: history.OK, Token: token, Result: result, Value: string(kind)}
}

func with(o history.Op, changes ...func(*history.Op)) history.Op {
	for _, change := range changes {
		change(&o)
	}
	return o
}

// missed is a LOCK whose wait has ended without the lock.
func missed(client int, call, back int64) history.Op {
	return history.Op{Client: client, Kind: history.Lock, Key: "job", Wait: true, Call: ms(call),
		Return: ms(back), Outcome: history.Null, Timeout: ms(500)}
}

func waited(o *history.Op)  { o.Wait = true }
func session(o *history.Op) { o.Session = true }
func shared(o *history.Op)  { o.Shared = true }
func fenced(o *history.Op)  { o.Outcome = history.Fenced }

func at(proxy int) func(*history.Op) {
	return func(o *history.Op) { o.Wait, o.Proxy = true, proxy }
}

// pings are beats, one after the other, each of which lasts for so many ms instead of 50.
func pings(lasting, n int64) (ops []history.Op) {
	for i := range n {
		ops = append(ops, history.Op{Kind: history.Beat, Outcome: history.OK, Timeout: ms(50),
			Call: ms(i * lasting), Return: ms((i + 1) * lasting)})
	}
	return ops
}

func fault(from, to int64, b history.Breaks) history.Fault {
	return history.Fault{Kind: "fault", From: ms(from), To: ms(to), Breaks: b}
}

// Each rule objects to a small history that breaks it, and to no correct or excused one. A fault
// excuses only what it breaks.
func TestRules(t *testing.T) {
	type ops = []history.Op
	type faults = []history.Fault
	notices, leases := history.Breaks{Notices: true}, history.Breaks{Leases: true}
	late := fault(0, 5000, notices)
	service := fault(0, 5000, history.Breaks{Service: true, Orphans: true})
	overtaken := ops{with(took(1, 1000, 4000, 20, 5000), waited),
		did(2, history.Unlock, 3500, 3600, 10, 1), with(took(2, 2000, 3000, 10, 5000), waited)}
	both := ops{took(1, 0, 10, 10, 5000), took(2, 1000, 1010, 20, 5000)}
	told := ops{with(took(1, 0, 10, 10, 1000), session), took(2, 1000, 1010, 20, 5000),
		{Client: 1, Kind: history.Lost, Key: "job", Token: 10, Call: ms(3000)}}
	owned := func(o *history.Op) { o.Owner = "me" }
	undone := ops{with(took(1, 0, 100, 0, 500), owned, func(o *history.Op) {
		o.Outcome, o.Got = history.Refused, "NOREPLICAS 0 of 1 replicas acknowledged it"
	}), took(2, 110, 120, 20, 50), with(took(1, 240, 250, 10, 500), owned)}
	list := func(got string, ops ...history.Op) []history.Op {
		return append(ops, history.Op{Kind: history.List, Key: "l", Outcome: history.OK, Got: got,
			Call: ms(100)})
	}
	push := func(value string, call int64, outcome history.Outcome) history.Op {
		return history.Op{Kind: history.Push, Key: "l", Value: value, Call: ms(call),
			Return: ms(call), Outcome: outcome}
	}
	abandoned := ops{with(took(2, 0, 10, 10, 60000), func(o *history.Op) {
		o.HungUp, o.Outcome, o.Return, o.Result, o.Wait = true, "", 0, 0, true
	}),
		with(took(1, 100, 5000, 20, 1000), func(o *history.Op) {
			o.Wait, o.Outcome, o.Result = true, history.Null, 0
		})}
	noGrant := with(took(2, 100, 1700, 0, 500), func(o *history.Op) {
		o.Wait, o.Outcome = true, history.Null
	})
	passes := took(3, 1000, 1100, 20, 500)
	left := with(took(1, 0, 0, 0, 1000), func(o *history.Op) {
		o.Wait, o.HungUp, o.Outcome, o.Left = true, true, "", ms(500)
	})
	far := with(took(1, 0, 10, 10, 2000), session)
	vanished := history.Fault{From: ms(500), To: ms(3600000), Breaks: history.Breaks{Notices: true,
		Vanishes: true}, Clients: []int{1}}
	blinked := vanished
	blinked.To = ms(900)
	lateVanished := vanished
	lateVanished.From = ms(2600)
	gaveUp := func(at int64) history.Op {
		return history.Op{Client: 1, Kind: history.Lost, Key: "job", Token: 10, Call: ms(at)}
	}
	owner := func(conn int) func(*history.Op) {
		return func(o *history.Op) { o.Conn, o.Owner, o.Session = conn, "anna", true }
	}
	gaveUpBy := func(conn int, at int64) history.Op {
		return history.Op{Client: 1, Conn: conn, Kind: history.Lost, Key: "job", Token: 10,
			Call: ms(at)}
	}
	ofTwo := ops{with(took(1, 0, 10, 10, 5000), owner(1)), with(took(1, 20, 30, 10, 5000), owner(2)),
		gaveUpBy(1, 500), {Kind: history.Get, Key: "job", Call: ms(9000)}}
	passedOver := ops{with(took(1, 0, 3000, 100, 500), waited)}
	for i := range int64(10) {
		passedOver = append(passedOver, with(took(2, 500+200*i, 600+200*i, 10+i, 50), at(1)))
	}
	for _, c := range []struct {
		name   string
		ops    ops
		faults faults
		rule   string // "" if none objects
	}{
		{"served in turn", ops{with(took(1, 1000, 3000, 10, 500), waited),
			with(took(2, 2000, 4000, 20, 500), waited)}, nil, ""},
		{"overtaken", overtaken, nil, "fifo"},
		{"overtaken while the upstream was silent", overtaken, faults{service}, "fifo"},
		{"overtaken by a client that came just after it",
			ops{with(took(1, 1000, 4000, 20, 500), waited),
				with(took(2, 1300, 3000, 10, 500), waited)}, nil, ""},
		{"overtaken by a client that came before its bytes were sent",
			ops{with(took(1, 1000, 4000, 20, 500), func(o *history.Op) {
				o.Wait, o.Sent = true, ms(1700)
			}), overtaken[1], overtaken[2]}, nil, ""},
		{"overtaken at another proxy", ops{overtaken[0], with(overtaken[1], at(1)),
			with(overtaken[2], at(1))}, nil, ""},
		{"overtaken, messages were late", overtaken, faults{late}, ""},
		{"overtaken, messages were late at another proxy", overtaken,
			faults{{From: 0, To: ms(5000), Breaks: notices, Proxies: []int{1}}}, "fifo"},
		{"overtaken, one of them was paused", overtaken,
			faults{{From: 0, To: ms(5000), Breaks: notices, Clients: []int{1}}}, ""},
		{"overtaken, another was paused", overtaken,
			faults{{From: 0, To: ms(5000), Breaks: notices, Clients: []int{3}}}, "fifo"},
		{"overtaken, the machine hung while the second came", overtaken,
			faults{fault(1900, 2300, history.Breaks{Arrival: true})}, ""},
		{"overtaken, the machine hung after that", overtaken,
			faults{fault(2100, 3300, history.Breaks{Arrival: true})}, "fifo"},
		{"overtaken, messages had been late long before",
			ops{with(took(1, 9000, 12000, 20, 5000), waited), with(took(2, 10000, 11000, 10, 500),
				waited)}, faults{late}, "fifo"},
		{"overtaken by a client that does not wait", ops{noGrant, passes}, nil, "overtaken"},
		{"overtaken so, just after another was served at its proxy", ops{noGrant, passes,
			took(5, 0, 20, 4, 800), with(took(4, 50, 900, 5, 50), waited)}, nil, ""},
		{"overtaken so, long after another was served there", ops{noGrant, passes,
			with(took(4, 50, 150, 5, 50), waited)}, nil, "overtaken"},
		{"overtaken so, while its proxy may not have been listed", ops{noGrant, passes},
			faults{fault(500, 700, history.Breaks{Listing: true})}, ""},
		{"overtaken so, its proxy was listed again", ops{noGrant, passes},
			faults{fault(3000, 3100, history.Breaks{Listing: true})}, "overtaken"},

		{"one after the other", ops{took(1, 0, 10, 10, 500), took(2, 505, 510, 20, 500)}, nil, ""},
		{"released between", ops{took(1, 0, 10, 10, 5000), did(1, history.Unlock, 500, 510, 10, 1),
			took(2, 505, 512, 20, 500)}, nil, ""},
		{"two holders", both, nil, "exclusion"},
		{"two holders, leases lost before", both, faults{fault(500, 600, leases)}, ""},
		{"two holders, leases lost later", both, faults{fault(5500, 5600, leases)}, "exclusion"},
		{"two holders, the upstream silent", both, faults{service}, "exclusion"},
		{"two holders, messages late", both, faults{late}, "exclusion"},
		{"a session told late", told, nil, "exclusion"},
		{"a session told late, by a proxy that hung", told, faults{late}, ""},
		{"a session told late, another proxy hung", told,
			faults{{From: 0, To: ms(5000), Breaks: notices, Proxies: []int{1}}}, "exclusion"},
		{"a session told in time", append(ops{with(told[2], func(o *history.Op) {
			o.Call = ms(2000)
		})}, told[:2]...), nil, ""},
		{"lost before its time",
			ops{took(1, 0, 10, 10, 5000), did(1, history.Relock, 1000, 1010, 10, 0)}, nil, "lost"},
		{"lost in time", ops{took(1, 0, 10, 10, 500), did(1, history.Relock, 1000, 1010, 10, 0)},
			nil, ""},

		{"tokens that fall", ops{took(1, 0, 10, 20, 100), took(2, 200, 210, 10, 100)}, nil,
			"tokens"},
		{"tokens that fall, leases lost", ops{took(1, 0, 10, 20, 100), took(2, 200, 210, 10, 100)},
			faults{fault(0, 100, leases)}, "tokens"},
		{"tokens that fall, allowed", ops{took(1, 0, 10, 20, 100), took(2, 200, 210, 10, 100)},
			faults{fault(0, 100, history.Breaks{Tokens: true})}, ""},
		{"a lock that was undone comes back", undone, faults{fault(220, 230,
			history.Breaks{Writes: true, Leases: true})}, ""},
		{"a lock that was undone comes back, nothing is lost", undone, nil, "tokens"},
		{"a token given twice, allowed", ops{took(1, 0, 10, 10, 100), took(2, 200, 210, 10, 100)},
			faults{fault(0, 100, history.Breaks{Tokens: true})}, ""},
		{"a token given twice, leases lost",
			ops{took(1, 0, 10, 10, 100), took(2, 200, 210, 10, 100)}, faults{fault(0, 100, leases)},
			"tokens"},
		{"another's lock released",
			ops{took(1, 0, 10, 10, 500), did(2, history.Unlock, 20, 30, 0, 1)}, nil, "stale"},
		{"another's lock released, data lost",
			ops{took(1, 0, 10, 10, 500), did(2, history.Unlock, 20, 30, 0, 1)},
			faults{fault(0, 15, history.Breaks{Writes: true})}, "stale"},
		{"another's lock released after a wait",
			ops{took(1, 0, 10, 10, 500), missed(2, 12, 18), did(2, history.Unlock, 20, 30, 0, 1)},
			nil, "stale"},
		{"a lock released that came after its wait",
			ops{took(1, 0, 10, 10, 500), missed(2, 12, 600),
				did(2, history.Unlock, 620, 630, 0, 1)}, nil, ""},
		{"a release lost, and repeated",
			ops{took(1, 0, 10, 10, 500), did(1, history.Unlock, 20, 30, 10, 1),
				did(1, history.Unlock, 60, 70, 0, 1)},
			faults{fault(40, 50, history.Breaks{Writes: true, Leases: true})}, ""},
		{"a shared lock that was over, before the clock was set back",
			ops{with(took(1, 0, 10, 10, 20), shared), did(1, history.Unlock, 60, 70, 0, 1)},
			faults{fault(40, 50, history.Breaks{Orphans: true})}, ""},
		{"a lock that was over, before the clock was set back",
			ops{took(1, 0, 10, 10, 20), did(1, history.Unlock, 60, 70, 0, 1)},
			faults{fault(40, 50, history.Breaks{Orphans: true})}, "stale"},
		{"a token given twice", ops{took(1, 0, 10, 10, 100), took(2, 200, 210, 10, 100)}, nil,
			"tokens"},
		{"a stale release", ops{took(1, 0, 10, 10, 100), took(2, 200, 210, 20, 100),
			did(1, history.Unlock, 300, 310, 10, 1)}, nil, "stale"},
		{"a stale RELOCK", ops{took(1, 0, 10, 10, 100), took(2, 200, 210, 20, 100),
			did(1, history.Relock, 300, 310, 10, 1)}, nil, "stale"},
		{"a stale write", ops{took(1, 0, 10, 10, 100), took(2, 200, 210, 20, 100),
			did(1, history.Fence, 300, 310, 10, 0)}, nil, "stale"},
		{"a stale write, refused", ops{took(1, 0, 10, 10, 100), took(2, 200, 210, 20, 100),
			with(did(1, history.Fence, 300, 310, 10, 0), fenced)}, nil, ""},
		{"fenced writes in another order",
			ops{took(1, 0, 10, 10, 100), did(2, history.Fence, 200, 210, 20, 0),
				did(1, history.Fence, 300, 310, 10, 0)}, nil, "order"},
		{"what a fence wrote isn't read",
			ops{took(1, 0, 10, 10, 500), did(1, history.Fence, 20, 30, 10, 0),
				{Client: 2, Kind: history.Get, Key: "job", Call: ms(40), Return: ms(50),
					Outcome: history.OK, Got: "something else"}}, nil, "fence"},
		{"what a fence wrote is read",
			ops{took(1, 0, 10, 10, 500), did(1, history.Fence, 20, 30, 10, 0),
				{Client: 2, Kind: history.Get, Key: "job", Call: ms(40), Return: ms(50),
					Outcome: history.OK, Got: "fence"}}, nil, ""},

		{"a dead client keeps the lock", abandoned, nil, "idle"},
		{"no waiter gets the lock, the machine hung for most of it", abandoned,
			faults{fault(500, 1500, history.Breaks{Arrival: true}),
				fault(1600, 2700, history.Breaks{Arrival: true})}, ""},
		{"a dead client keeps the lock, the machine hung for a while", abandoned,
			faults{fault(500, 1500, history.Breaks{Arrival: true})}, "idle"},
		{"a dead client may keep the lock", abandoned, faults{service}, ""},
		{"a dead client keeps the lock, messages late", abandoned, faults{late}, "idle"},
		{"the lock cannot be had",
			ops{{Kind: history.Probe, Key: "job", Outcome: history.Null, Call: ms(1),
				Return: ms(2)}}, nil, "service"},
		{"the lock cannot be had, the machine hung",
			ops{{Kind: history.Probe, Key: "job", Outcome: history.Refused, Call: ms(1),
				Return: ms(6000)}}, faults{fault(500, 5500, history.Breaks{Arrival: true})}, ""},
		{"the lock cannot be had, the machine hung for a moment",
			ops{{Kind: history.Probe, Key: "job", Outcome: history.Refused, Call: ms(1),
				Return: ms(6000)}}, faults{fault(500, 1500, history.Breaks{Arrival: true})}, "service"},
		{"given late", ops{took(1, 0, 10, 10, 500), with(took(2, 100, 1700, 20, 500), waited)}, nil,
			"late"},
		{"given in time", ops{took(1, 0, 10, 10, 500), with(took(2, 100, 1100, 20, 500), waited)},
			nil, ""},
		{"given late, the machine hung",
			ops{took(1, 0, 10, 10, 500), with(took(2, 100, 1700, 20, 500), waited)},
			faults{fault(600, 1200, history.Breaks{Arrival: true})}, ""},
		{"given late, the upstream silent",
			ops{took(1, 0, 10, 10, 500), with(took(2, 100, 1700, 20, 500), waited)},
			faults{service}, ""},
		{"given in time, and told late",
			ops{took(1, 0, 10, 10, 500), with(took(2, 100, 1700, 20, 500), waited)}, faults{late},
			""},
		{"given late, messages were late at another proxy",
			ops{took(1, 0, 10, 10, 500), with(took(2, 100, 1700, 20, 500), waited)},
			faults{{From: 0, To: ms(5000), Breaks: notices, Proxies: []int{1}}}, "late"},
		{"no waiter gets a free lock", ops{took(1, 0, 10, 10, 500), noGrant}, nil, "late"},
		{"given after a client left without reading",
			ops{left, with(took(2, 100, 1700, 20, 500), waited)}, nil, ""},
		{"given late after a client left without reading",
			ops{left, with(took(2, 100, 2400, 20, 500), waited)}, nil, "late"},
		{"kept for a client that hung up on a machine that had vanished",
			ops{left, with(took(2, 100, 14500, 20, 500), waited)}, faults{vanished}, ""},
		{"kept for long for a client that hung up on a machine that had vanished",
			ops{left, with(took(2, 100, 52000, 20, 500), waited)}, faults{vanished}, "late"},
		{"kept for a client that hung up before its machine vanished",
			ops{left, with(took(2, 100, 2400, 20, 500), waited)}, faults{lateVanished}, "late"},
		{"kept for a machine that has vanished",
			ops{far, with(took(2, 100, 14500, 20, 500), waited)}, faults{vanished}, ""},
		{"kept for long for a machine that has vanished",
			ops{far, with(took(2, 100, 16500, 20, 500), waited)}, faults{vanished}, "late"},
		{"kept for a machine that was away for a moment",
			ops{far, with(took(2, 100, 10500, 20, 500), waited)}, faults{blinked}, ""},
		{"kept for a machine that has vanished, whose client gave it up there",
			ops{far, gaveUp(6000), with(took(2, 100, 14500, 20, 500), waited)}, faults{vanished},
			""},
		{"kept for long for a machine that has vanished, whose client gave it up there",
			ops{far, gaveUp(6000), with(took(2, 100, 16500, 20, 500), waited)}, faults{vanished},
			"late"},
		{"kept for a client that gave it up before its machine vanished",
			ops{far, gaveUp(400), with(took(2, 100, 2500, 20, 500), waited)}, faults{lateVanished},
			"late"},
		{"kept for a client that gave it up while its machine was away",
			ops{far, gaveUp(800), with(took(2, 100, 2000, 20, 500), waited)}, faults{blinked}, ""},
		{"kept for long for a client that gave it up while its machine was away",
			ops{far, gaveUp(800), with(took(2, 100, 4500, 20, 500), waited)}, faults{blinked},
			"late"},
		{"given late, where much was done", append(ops{took(1, 0, 10, 10, 500),
			with(took(2, 100, 1700, 20, 500), waited)}, pings(50, 40)...), nil, "late"},
		{"given late, where little else was done", append(ops{took(1, 0, 10, 10, 500),
			with(took(2, 100, 1700, 20, 500), waited)}, pings(400, 10)...), nil, ""},
		{"overtaken, where little was done between", append(append(ops{}, overtaken...),
			pings(400, 10)...), nil, ""},
		{"overtaken, where much was done between", append(append(ops{}, overtaken...),
			pings(50, 80)...), nil, "fifo"},
		{"a session told late, where little else was done", append(append(ops{}, told...),
			pings(500, 8)...), nil, ""},
		{"a session told late, where much was done", append(append(ops{}, told...),
			pings(50, 80)...), nil, "exclusion"},
		{"of an owner's two connections one is left", append(append(ops{}, ofTwo...),
			took(2, 1000, 1010, 20, 5000)), nil, "exclusion"},
		{"an owner's connections are closed", append(append(ops{}, ofTwo...),
			gaveUpBy(2, 800), took(2, 1000, 1010, 20, 5000)), nil, ""},
		{"one of an owner's connections is refused", append(append(ops{}, ofTwo[:1]...),
			with(ofTwo[1], func(o *history.Op) { o.Outcome, o.Result = history.Null, 0 })), nil,
			"owner"},
		{"passed over", passedOver, nil, "turns"},
		{"passed over while messages were late", passedOver, faults{late}, ""},
		{"others were first", append(ops{with(took(1, 0, 1300, 100, 500), waited)},
			passedOver[1:4]...), nil, ""},

		{"another's answer",
			ops{{Kind: history.Echo, Outcome: history.Garbled, Want: "a", Got: "b"}}, nil,
			"answer"},

		{"a write lost", list("", push("a", 1, history.OK)), nil, "writes"},
		{"a write lost with the data", list("", push("a", 1, history.OK)),
			faults{fault(0, 50, history.Breaks{Writes: true})}, ""},
		{"a write lost, leases lost", list("", push("a", 1, history.OK)),
			faults{fault(0, 50, leases)}, "writes"},
		{"a write of unknown outcome lost", list("", push("a", 1, history.Unknown)), nil, ""},
		{"a write done twice", list("a\na", push("a", 1, history.OK)), faults{service}, "writes"},
		{"a write refused and done", list("a", push("a", 1, history.Refused)), nil, "writes"},
		{"writes in another order", list("b\na", push("a", 1, history.Unknown),
			push("b", 2, history.OK)), nil, "writes"},
	} {
		t.Run(c.name, func(t *testing.T) { objects(t, c.ops, c.faults, c.rule) })
	}
}

// objects fails unless a rule objects to a history. "" is none, and then no other may object.
func objects(t *testing.T, ops []history.Op, faults []history.Fault, rule string) {
	found := map[string]string{}
	for _, v := range check.Check(history.History{Ops: ops, Faults: faults},
		check.DefaultBounds()).Violations {
		found[v.Rule] = v.Text
	}
	if rule != "" && found[rule] == "" {
		t.Errorf("%q doesn't object", rule)
	}
	if rule == "" && len(found) > 0 {
		t.Errorf("accused of %v", found)
	}
}

// An owner's connections close, and before Redis hears of it the owner asks again by a connection
// with the same number: it has the same token, and the lock until that connection closes.
func TestOwnerAsksAgainBeforeRelease(t *testing.T) {
	owned := func(o *history.Op) { o.Session, o.Owner = true, "me" }
	lost := func(at int64) history.Op {
		return history.Op{Client: 1, Kind: history.Lost, Key: "job", Token: 10, Session: true,
			Call: ms(at)}
	}
	held := []history.Op{with(took(1, 0, 10, 10, 60000), owned), lost(2000),
		with(took(1, 2010, 2020, 10, 60000), owned), lost(9000)}
	gaveUp := with(took(2, 1000, 8000, 0, 60000), waited)
	gaveUp.Outcome = history.Null
	for name, c := range map[string]struct {
		op   history.Op
		want string
	}{
		"another waits and gives up": {gaveUp, ""},
		"another is given it":        {took(3, 5000, 5010, 20, 60000), "exclusion"},
	} {
		h := history.History{Ops: append(pings(50, 200), append(held, c.op)...)}
		got := []string{}
		for _, v := range check.Check(h, check.DefaultBounds()).Violations {
			got = append(got, v.Rule)
		}
		if !slices.Contains(append(got, ""), c.want) || c.want == "" && len(got) > 0 {
			t.Errorf("%s: violations of %q, want %q", name, got, c.want)
		}
	}
}

// An owner's UNLOCK, or its RELOCK with a shorter timeout, has no answer, and it asks again: that
// request can come after the answer.
func TestOwnerAsksAgainBehindALateRequest(t *testing.T) {
	owned := func(o *history.Op) { o.Owner = "me" }
	unanswered := func(o *history.Op) { o.Return, o.Outcome, o.Result = 0, history.Unknown, 0 }
	short := func(o *history.Op) { o.Timeout = ms(300) }
	session := func(o *history.Op) { o.Session = true }
	unlock, relock := did(1, history.Unlock, 100, 110, 10, 1), did(1, history.Relock, 100, 110, 10, 1)
	late, lateShort := with(relock, unanswered), with(relock, short, unanswered)
	late.Timeout = ms(2000)
	again := with(took(1, 1000, 1010, 10, 5000), owned)
	for _, c := range []struct {
		releases []history.Op
		again    history.Op
		at       int64 // when another client is given the lock
		broken   bool
	}{
		{[]history.Op{with(unlock, unanswered)}, again, 1100, false},
		{[]history.Op{unlock}, again, 1100, true},
		{[]history.Op{lateShort}, again, 1600, false}, {[]history.Op{lateShort}, again, 1100, true},
		{[]history.Op{with(relock, short)}, again, 1600, true},
		{[]history.Op{lateShort, late}, again, 1600, false},
		{[]history.Op{with(unlock, unanswered)}, with(again, session), 2000, false},
		{[]history.Op{lateShort}, with(again, session), 2000, true}, // it is renewed
	} {
		ops := append([]history.Op{with(took(1, 0, 10, 10, 5000), owned)}, c.releases...)
		ops = append(ops, c.again, took(2, c.at, c.at+10, 20, 5000))
		got := check.Check(history.History{Ops: ops}, check.DefaultBounds()).Violations
		if len(got) > 0 != c.broken {
			t.Errorf("behind %+v, %+v, at %d: %v", c.releases, c.again, c.at, got)
		}
	}
}

// A client hangs up after its machine has vanished: its proxy does not know, and renews the session
// lock that it is given until it does.
func TestHangsUpAfterItsMachineVanished(t *testing.T) {
	hungUp := func(o *history.Op) {
		o.Session, o.Wait, o.HungUp, o.Left = true, true, true, ms(1200)
		o.Outcome, o.Return, o.Result = "", 0, 0
	}
	gaveUp := with(took(2, 1000, 8000, 0, 60000), waited)
	gaveUp.Outcome = history.Null
	vanished := fault(1000, 3_600_000, history.Breaks{Notices: true, Vanishes: true})
	vanished.Clients = []int{1}
	for _, c := range []struct {
		faults []history.Fault
		want   int
	}{{[]history.Fault{vanished}, 0}, {nil, 2}} { // idle, and late
		h := history.History{Faults: c.faults,
			Ops: append(pings(50, 200), with(took(1, 800, 0, 0, 600), hungUp), gaveUp)}
		if got := check.Check(h, check.DefaultBounds()).Violations; len(got) != c.want {
			t.Errorf("faults %v: %v", c.faults, got)
		}
	}
}

// An owner has released its lock, and others had it since. Then a power cut brings it back.
func TestReleasedLockComesBack(t *testing.T) {
	owned := func(o *history.Op) { o.Owner = "me" }
	ops := []history.Op{with(took(1, 0, 10, 10, 5000), owned), did(1, history.Unlock, 100, 110, 10, 1),
		took(2, 120, 130, 20, 5000), did(2, history.Unlock, 200, 210, 20, 1),
		with(took(1, 1000, 1010, 10, 5000), owned), took(3, 1100, 1110, 30, 5000)}
	cut := fault(300, 400, history.Breaks{Leases: true, Writes: true, Service: true})
	got := check.Check(history.History{Ops: ops, Faults: []history.Fault{cut}}, check.DefaultBounds())
	if len(got.Violations) != 1 || got.Violations[0].Rule != "exclusion" ||
		!strings.Contains(got.Violations[0].Text, "token 30") {
		t.Errorf("%v", got.Violations)
	}
}
