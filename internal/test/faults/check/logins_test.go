//go:build linux

package check_test

import (
	"slices"
	"testing"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/history"
)

// The answers of CLIENT UNBLOCK and the ends of the waits agree, and logins hold for as long as
// their passwords: the checker objects to every history in which they do not, and to no other.
func TestUnblockedAndLogins(t *testing.T) {
	// lock is a LOCK of client 1 that waits until 5 s.
	lock := func(until int64, outcome history.Outcome, got string) history.Op {
		o := with(took(1, 10, until, 0, 500), waited)
		o.Number, o.Within, o.Sent, o.Outcome, o.Got = 7, ms(4990), ms(11), outcome, got
		if outcome == history.OK {
			o.Result = 20
		}
		return o
	}
	unblock := func(from, until, result int64, option string) history.Op {
		return history.Op{Client: 1, Conn: 1, Kind: history.Unblock, Key: "job", Number: 7,
			Want: option, Call: ms(from), Return: ms(until), Outcome: history.OK, Result: result}
	}
	unknown := unblock(1000, 0, 0, "ERROR")
	unknown.Outcome, unknown.Return = history.Unknown, 0
	by := func(kind history.Kind, password string, from, until int64) history.Op {
		return history.Op{Client: 2, Kind: kind, Key: "auth", Owner: "rita", Value: password,
			Call: ms(from), Return: ms(until), Outcome: history.OK}
	}
	refused := func(o history.Op, text string) history.Op {
		o.Outcome, o.Got = history.Refused, text
		return o
	}
	lost := func(o history.Op, text string) history.Op {
		o.Outcome, o.Return, o.Got = history.Unknown, 0, text
		return o
	}
	const wrong, noauth = "WRONGPASS invalid username-password pair", "NOAUTH log in"
	const unblocked = "UNBLOCKED client unblocked via CLIENT UNBLOCK"
	first := by(history.Accept, "1", 0, 10)
	second := by(history.Accept, "2", 500, 510)
	removed := by(history.Reject, "1", 1000, 1010)
	without := history.Op{Client: 3, Kind: history.Lock, Key: "job", Call: ms(100), Return: ms(110)}
	gone := fault(50, 200, history.Breaks{Users: true})
	service := fault(0, 9000, history.Breaks{Service: true})
	held := took(9, 0, 1, 10, 60000)
	for _, c := range []struct {
		name string
		ops  []history.Op
		by   []history.Fault
		rule string // "" if none objects
	}{
		{"ended", []history.Op{lock(1020, history.Null, ""), unblock(1000, 1010, 1, "TIMEOUT")}, nil, ""},
		{"ended by an error",
			[]history.Op{lock(1020, history.Refused, unblocked), unblock(1000, 1010, 1, "ERROR")}, nil, ""},
		{"ended the other way",
			[]history.Op{lock(1020, history.Null, ""), unblock(1000, 1010, 1, "ERROR")}, nil, "unblocked"},
		{"it got the lock as well",
			[]history.Op{lock(1020, history.OK, ""), unblock(1000, 1010, 1, "TIMEOUT")}, nil, "unblocked"},
		{"it got the lock instead",
			[]history.Op{lock(1020, history.OK, ""), unblock(1000, 1030, 0, "TIMEOUT")}, nil, ""},
		{"told, and it failed in another way",
			[]history.Op{lock(1020, history.Refused, "BUSY"), unblock(1000, 1010, 1, "ERROR")}, nil,
			"unblocked"},
		{"told, and its connection was lost",
			[]history.Op{lock(0, history.Unknown, "EOF"), unblock(1000, 1010, 1, "ERROR")}, nil, ""},
		{"told twice", []history.Op{lock(1020, history.Null, ""), unblock(1000, 1010, 1, "TIMEOUT"),
			unblock(1011, 1015, 1, "TIMEOUT")}, nil, "unblocked"},
		{"it ended, and 0 was told",
			[]history.Op{lock(1020, history.Null, ""), unblock(1000, 1030, 0, "TIMEOUT")}, nil,
			"unblocked"},
		{"it ended by an error, and 0 was told",
			[]history.Op{lock(1020, history.Refused, unblocked), unblock(1000, 1030, 0, "ERROR")}, nil,
			"unblocked"},
		{"it ended, and what was told is not known",
			[]history.Op{lock(1020, history.Refused, unblocked), unknown}, nil, ""},
		{"its time was over", []history.Op{lock(5010, history.Null, ""), unblock(5005, 5030, 0, "")},
			nil, ""},
		{"it went on to wait",
			[]history.Op{lock(4900, history.Null, ""), unblock(1000, 1010, 1, "TIMEOUT")}, nil,
			"unblocked"},
		{"it went on to wait, Redis was silent",
			[]history.Op{lock(4900, history.Null, ""), unblock(1000, 1010, 1, "TIMEOUT")},
			[]history.Fault{service}, ""},
		{"it waited, and was not unblocked",
			[]history.Op{lock(5010, history.Null, ""), unblock(2000, 2010, 0, "TIMEOUT")}, nil,
			"unblocked"},
		{"it waited, and was not unblocked, Redis was silent",
			[]history.Op{lock(5010, history.Null, ""), unblock(2000, 2010, 0, "TIMEOUT")},
			[]history.Fault{service}, ""},

		{"logins", []history.Op{first, by(history.Login, "1", 20, 30), second,
			by(history.Login, "2", 520, 530), removed,
			refused(by(history.Login, "1", 1020, 1030), wrong)}, nil, ""},
		{"a right password was refused",
			[]history.Op{first, second, refused(by(history.Login, "2", 520, 530), wrong), removed}, nil,
			"login"},
		{"a right password was refused while another was removed", []history.Op{first, second, removed,
			refused(by(history.Login, "2", 1000, 1005), wrong)}, nil, "login"},
		{"a password was refused while it was removed",
			[]history.Op{first, removed, refused(by(history.Login, "1", 999, 1005), wrong)}, nil, ""},
		{"a removed password was refused, and the connection lost",
			[]history.Op{first, removed, lost(by(history.Login, "1", 1020, 0), wrong)}, nil, ""},
		{"a removed password was right",
			[]history.Op{first, removed, by(history.Login, "1", 1020, 1030)}, nil, "login"},
		{"a client was refused later",
			[]history.Op{first, by(history.Login, "1", 20, 30),
				refused(by(history.Echo, "1", 40, 50), noauth)}, nil, "login"},
		{"a client was refused once its password was removed", []history.Op{first, removed,
			by(history.Login, "1", 20, 30), refused(by(history.Echo, "1", 1040, 1050), noauth)}, nil, ""},
		{"a client without a login was refused", []history.Op{first, refused(without, noauth)}, nil,
			"login"},
		{"a client of a removed user was refused", []history.Op{first, refused(without, noauth)},
			[]history.Fault{gone}, ""},
	} {
		ops := append(pings(50, 200), c.ops...)
		switch wait := c.ops[0]; {
		case wait.Outcome == history.OK && wait.Number > 0:
			ops = append(ops, held, did(9, history.Unlock, 1005, 1015, 10, 1))
		case wait.Number > 0:
			ops = append(ops, held)
		}
		var rules []string
		for _, v := range check.Check(history.History{Ops: ops, Faults: c.by},
			check.DefaultBounds()).Violations {
			rules = append(rules, v.Rule)
		}
		if c.rule == "" && rules != nil || c.rule != "" && !slices.Contains(rules, c.rule) {
			t.Errorf("%s: %q object, want %q", c.name, rules, c.rule)
		}
	}
}
