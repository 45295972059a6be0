package passthrough

import (
	"fmt"
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/upstream"
)

// What is in force on a connection stays so after an error, as Redis does it, unless the error
// itself ends it.
func TestErrorsLeaveTheState(t *testing.T) {
	const noPerm, arity = "-NOPERM this user has no permissions", "-ERR wrong number of arguments"
	every := []string{noPerm, arity, "-NOAUTH Authentication required.", "-BUSY Redis is busy",
		"-LOADING Redis is loading",
		"-MASTERDOWN Link with MASTER is down", "-READONLY You can't write",
		"-OOM command not allowed", "-MISCONF no", "-NOREPLICAS no", "!8\r\nERR long"}
	text := "bad name"
	changes := []Expect{
		{Effect: commands.Multi}, {Effect: commands.Discard}, {Effect: commands.Watch},
		{Effect: commands.Unwatch}, {Effect: commands.Reset}, {Effect: commands.Monitor},
		{Effect: commands.Select, Change: &upstream.Identity{DB: 7}},
		{Effect: commands.Auth, Change: &upstream.Identity{User: "eve", Password: "x",
			LoggedIn: true}},
		{Effect: commands.Hello, Change: &upstream.Identity{Proto: 3}},
		{Effect: commands.Subscribe, Count: 1}, {Effect: commands.PSubscribe, Count: 1},
		{Effect: commands.SSubscribe, Count: 1},
		{Effect: commands.Unsubscribe}, {Effect: commands.PUnsubscribe},
		{Effect: commands.SUnsubscribe},
		{Effect: commands.ReplyOff}, {Effect: commands.ReplySkip}, {Effect: commands.ReplyOn},
		{Effect: commands.SetName, Text: &text}, {Effect: commands.SetLibName, Text: &text},
		{Effect: commands.SetLibVer, Text: &text}, {Effect: commands.TrackingOn},
		{Effect: commands.TrackingOff}, {Effect: commands.Quit},
	}
	inForce := map[string]State{
		"nothing":         {},
		"WATCH":           {traits: Watching},
		"MULTI":           {traits: InMulti},
		"WATCH and MULTI": {traits: Watching | InMulti},
		"a login": {Setup: upstream.Setup{Identity: upstream.Identity{User: "bob",
			Password: "b", LoggedIn: true, DB: 3, Proto: 3}}, Admitted: true},
		"subscriptions": {subscriptions: commands.Subscriptions{Channels: 1, Patterns: 2,
			Sharded: 3}, traits: subscribed},
		"tracking":         {traits: tracking},
		"CLIENT REPLY OFF": {traits: replyOff},
		"a name": {Setup: upstream.Setup{Labels: upstream.Labels{Name: "me", LibName: "lib",
			LibVer: "1"}}},
		"something unknown": {traits: unknownState | stickyState},
	}
	same := func(t *testing.T, before, after State) {
		t.Helper()
		if got, want := fmt.Sprintf("%+v", after), fmt.Sprintf("%+v", before); got != want {
			t.Errorf("%s, before that %s", got, want)
		}
	}
	for name, before := range inForce {
		for _, change := range changes {
			for _, said := range every {
				t.Run(fmt.Sprintf("%s, effect %d, %s", name, change.Effect, said),
					func(t *testing.T) {
						s := before
						s.apply(change, headOf(t, said+"\r\n"))
						same(t, before, s)
					})
			}
		}
		for _, said := range append(every, "-ERR EXEC without MULTI") {
			if said == "-ERR EXEC without MULTI" && before.Has(InMulti) {
				continue
			}
			t.Run(fmt.Sprintf("%s, EXEC, %s", name, said), func(t *testing.T) {
				s := before
				s.apply(Expect{Effect: commands.Exec}, headOf(t, said+"\r\n"))
				same(t, before, s)
			})
		}
	}
}

// A transaction ends with the replies to EXEC and DISCARD with which it ends in Redis.
func TestRepliesThatEndATransaction(t *testing.T) {
	for _, test := range []struct {
		effect          commands.Effect
		reply           string
		before          State
		multi, watching bool
	}{
		{commands.Exec, "*0", State{traits: InMulti | Watching}, false, false},
		{commands.Exec, "*-1", State{traits: InMulti | Watching}, false, false},
		{commands.Exec, "_", State{traits: InMulti | Watching}, false, false},
		{commands.Exec, "-EXECABORT Transaction discarded because of previous errors.",
			State{traits: InMulti | Watching}, false, false},
		{commands.Exec, "-EXECABORT Transaction discarded because of: NOPERM no",
			State{traits: Watching}, false, false},
		{commands.Exec, "-ERR Transaction contains write commands but instance is now " +
			"a read-only replica. " +
			"EXEC aborted.", State{traits: InMulti | Watching}, false, false},
		{commands.Exec, "-MOVED 1 a:1", State{traits: InMulti | Watching}, false, false},
		{commands.Exec, "-CLUSTERDOWN Hash slot not served", State{traits: InMulti | Watching},
			false, false},
		{commands.Exec, "-UPSTREAM connection to a:1 was lost before the reply: the command may " +
			"have run", State{traits: InMulti | Watching}, false,
			false},
		{commands.Exec, "-UPSTREAM connection to a:1 was lost before the reply: the command may " +
			"have run", State{traits: Watching}, false, true},
		{commands.Exec, "-ERR EXEC without MULTI", State{traits: InMulti | Watching}, false,
			true},
		{commands.Discard, "+OK", State{traits: InMulti | Watching}, false, false},
		{commands.Discard, "-UPSTREAM connection to a:1 was lost before the reply: the command " +
			"may have run", State{traits: InMulti | Watching}, false,
			false},
		{commands.Discard, "-ERR DISCARD without MULTI", State{traits: Watching}, false, true},
		{commands.Discard, "-ERR DISCARD without MULTI", State{traits: InMulti | Watching},
			false, true},
	} {
		s := test.before
		s.apply(Expect{Effect: test.effect}, headOf(t, test.reply+"\r\n"))
		if s.Has(InMulti) != test.multi || s.Has(Watching) != test.watching {
			t.Errorf("%s, within MULTI %v, WATCH %v: in MULTI %v, watching %v", test.reply,
				test.before.Has(InMulti), test.before.Has(Watching), s.Has(InMulti), s.Has(Watching))
		}
	}
}
