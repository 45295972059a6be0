package passthrough

import (
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// headOf is what a Scanner says of one reply.
func headOf(t testing.TB, reply string) resp.Head {
	t.Helper()
	var s resp.Scanner
	if _, done, err := s.Scan([]byte(reply)); !done || err != nil {
		t.Fatalf("%q is no reply: %v", reply, err)
	}
	return s.Head()
}

// step is one request and the reply to it.
type step struct {
	expect Expect
	reply  string
}

func TestState(t *testing.T) {
	const ok, queued, fail = "+OK\r\n", "+QUEUED\r\n", "-ERR no\r\n"
	multi, exec, discard := Expect{Effect: commands.Multi}, Expect{Effect: commands.Exec},
		Expect{Effect: commands.Discard}
	selects := func(db int) Expect {
		return Expect{Effect: commands.Select,
			Change: &upstream.Identity{DB: db}}
	}
	auth := Expect{Effect: commands.Auth, Change: &upstream.Identity{User: "bob", Password: "pw",
		LoggedIn: true}}
	hello := func(proto int) Expect {
		return Expect{Effect: commands.Hello, Change: &upstream.Identity{Proto: proto}}
	}
	helloAuth := Expect{Effect: commands.Hello,
		Change: &upstream.Identity{Proto: 3, User: "bob", Password: "pw", LoggedIn: true}}
	initial := upstream.Identity{Proto: 2, DB: 1, User: "first", Password: "p", LoggedIn: true}
	bob := upstream.Identity{Proto: 2, DB: 1, User: "bob", Password: "pw", LoggedIn: true}
	with := func(id upstream.Identity, change func(*upstream.Identity)) upstream.Identity {
		change(&id)
		return id
	}

	for _, test := range []struct {
		name  string
		steps []step
		want  upstream.Identity
		multi bool
		plain bool
	}{
		{"new", nil, initial, false, true},
		{"SELECT", []step{{selects(3), ok}}, with(initial, func(i *upstream.Identity) { i.DB = 3 }),
			false, true},
		{"SELECT fails", []step{{selects(99), fail}}, initial, false, true},
		{"SELECT with wrong arguments", []step{{Expect{Effect: commands.Select}, fail}}, initial,
			false, true},
		{"AUTH", []step{{auth, ok}}, bob, false, true},
		{"AUTH fails", []step{{auth, "-WRONGPASS no\r\n"}}, initial, false, true},
		{"HELLO 3", []step{{hello(3), "%1\r\n+proto\r\n:3\r\n"}},
			with(initial, func(i *upstream.Identity) { i.Proto = 3 }), false, true},
		{"HELLO alone", []step{{hello(3), "%0\r\n"}, {hello(0), "%0\r\n"}},
			with(initial, func(i *upstream.Identity) { i.Proto = 3 }), false, true},
		{"HELLO back", []step{{hello(3), "%0\r\n"}, {hello(2), "*0\r\n"}}, initial, false, true},
		{"HELLO fails", []step{{hello(4), "-NOPROTO no\r\n"}}, initial, false, true},
		{"HELLO with AUTH", []step{{helloAuth, "%0\r\n"}},
			with(bob, func(i *upstream.Identity) { i.Proto = 3 }), false, true},
		{"MULTI", []step{{multi, ok}}, initial, true, false},
		{"MULTI denied", []step{{multi, "-NOPERM no\r\n"}}, initial, false, true},
		{"EXEC", []step{{multi, ok}, {exec, "*0\r\n"}}, initial, false, true},
		{"EXEC applies what was queued", []step{{multi, ok}, {selects(3), queued}, {auth, queued},
			{selects(4), queued}, {exec, "*3\r\n+OK\r\n+OK\r\n+OK\r\n"}},
			with(bob, func(i *upstream.Identity) { i.DB = 4 }), false, true},
		{"not before EXEC", []step{{multi, ok}, {selects(3), queued}}, initial, true, false},
		{"not what was refused", []step{{multi, ok}, {selects(3), fail},
			{exec, "-EXECABORT no\r\n"}}, initial, false, true},
		{"not when EXEC aborts", []step{{multi, ok}, {selects(3), queued},
			{exec, "-EXECABORT no\r\n"}}, initial, false, true},
		{"not when a watched key has changed",
			[]step{{multi, ok}, {selects(3), queued}, {exec, "*-1\r\n"}}, initial, false, true},
		{"the same in RESP3", []step{{multi, ok}, {selects(3), queued}, {exec, "_\r\n"}}, initial,
			false, true},
		{"not what was discarded", []step{{multi, ok}, {selects(3), queued}, {discard, ok},
			{multi, ok}, {exec, "*0\r\n"}}, initial, false, true},
		{"DISCARD denied", []step{{multi, ok}, {discard, "-NOPERM no\r\n"}}, initial, true, false},
		{"a bulk that says QUEUED", []step{{multi, ok}, {exec, "*0\r\n"},
			{selects(3), "$6\r\nQUEUED\r\n"}},
			with(initial, func(i *upstream.Identity) { i.DB = 3 }), false, true},
		{"RESET", []step{{helloAuth, "%0\r\n"}, {selects(5), ok}, {multi, ok},
			{Expect{Effect: commands.Reset}, "+RESET\r\n"}}, initial, false, true},
		{"RESET denied", []step{{selects(5), ok},
			{Expect{Effect: commands.Reset}, "-NOPERM no\r\n"}},
			with(initial, func(i *upstream.Identity) { i.DB = 5 }), false, true},
		{"MONITOR", []step{{Expect{Effect: commands.Monitor}, ok}}, initial, false, false},
		{"MONITOR denied", []step{{Expect{Effect: commands.Monitor}, "-NOPERM no\r\n"}}, initial,
			false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newState(initial)
			for _, step := range test.steps {
				s.apply(step.expect, headOf(t, step.reply))
			}
			if s.Identity != test.want || s.Has(InMulti) != test.multi || s.Plain() != test.plain {
				t.Errorf("got %+v, in MULTI %v, plain %v; want %+v, %v, %v", s.Identity, s.Has(InMulti),
					s.Plain(), test.want, test.multi, test.plain)
			}
		})
	}
}

// What the client sees of CLIENT REPLY, as Redis 7.0 does it. The upstream is always told ON.
func TestClientReply(t *testing.T) {
	for _, test := range []struct {
		name    string
		effects []commands.Effect
		up      string
		want    string
	}{
		{"ON", []commands.Effect{commands.ReplyOn}, "+OK\r\n", "+OK\r\n"},
		{"OFF", []commands.Effect{commands.ReplyOff, commands.NoEffect, commands.NoEffect},
			"+OK\r\n:1\r\n:2\r\n", ""},
		{"OFF then ON", []commands.Effect{commands.ReplyOff, commands.NoEffect, commands.ReplyOn,
			commands.NoEffect}, "+OK\r\n:1\r\n+OK\r\n:2\r\n", "+OK\r\n:2\r\n"},
		{"SKIP", []commands.Effect{commands.ReplySkip, commands.NoEffect, commands.NoEffect},
			"+OK\r\n:1\r\n:2\r\n", ":2\r\n"},
		{"SKIP of an error", []commands.Effect{commands.ReplySkip, commands.NoEffect,
			commands.NoEffect}, "+OK\r\n-ERR x\r\n:2\r\n", ":2\r\n"},
		{"SKIP, SKIP", []commands.Effect{commands.ReplySkip, commands.ReplySkip, commands.NoEffect,
			commands.NoEffect}, "+OK\r\n+OK\r\n:1\r\n:2\r\n", ":2\r\n"},
		{"SKIP, ON", []commands.Effect{commands.ReplySkip, commands.ReplyOn, commands.NoEffect},
			"+OK\r\n+OK\r\n:1\r\n", "+OK\r\n:1\r\n"},
		{"SKIP, OFF, ON", []commands.Effect{commands.ReplySkip, commands.ReplyOff, commands.ReplyOn,
			commands.NoEffect}, "+OK\r\n+OK\r\n+OK\r\n:1\r\n", "+OK\r\n:1\r\n"},
		{"OFF, SKIP, ON", []commands.Effect{commands.ReplyOff, commands.ReplySkip, commands.ReplyOn,
			commands.NoEffect}, "+OK\r\n+OK\r\n+OK\r\n:1\r\n", "+OK\r\n:1\r\n"},
		{"OFF, RESET", []commands.Effect{commands.ReplyOff, commands.Reset, commands.NoEffect},
			"+OK\r\n+RESET\r\n:1\r\n", "+RESET\r\n:1\r\n"},
		{"SKIP, RESET", []commands.Effect{commands.ReplySkip, commands.Reset, commands.NoEffect},
			"+OK\r\n+RESET\r\n:1\r\n", ":1\r\n"},
		{"OFF, SKIP, RESET", []commands.Effect{commands.ReplyOff, commands.ReplySkip, commands.Reset,
			commands.NoEffect}, "+OK\r\n+OK\r\n+RESET\r\n:1\r\n", "+RESET\r\n:1\r\n"},
		{"denied", []commands.Effect{commands.ReplyOff, commands.NoEffect}, "-NOPERM no\r\n:1\r\n",
			"-NOPERM no\r\n:1\r\n"},
		{"OFF, MULTI, EXEC", []commands.Effect{commands.ReplyOff, commands.Multi, commands.NoEffect,
			commands.Exec, commands.ReplyOn}, "+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:1\r\n+OK\r\n",
			"+OK\r\n"},
		{"SKIP, MULTI", []commands.Effect{commands.ReplySkip, commands.Multi, commands.NoEffect,
			commands.Exec}, "+OK\r\n+OK\r\n+QUEUED\r\n*1\r\n:1\r\n", "+QUEUED\r\n*1\r\n:1\r\n"},
		{"OFF, SUBSCRIBE", []commands.Effect{commands.ReplyOff, commands.Subscribe},
			"+OK\r\n*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n",
			"*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n"},
		{"OFF, SUBSCRIBE denied", []commands.Effect{commands.ReplyOff, commands.Subscribe},
			"+OK\r\n-NOPERM no\r\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := newUnplugged(upstream.Identity{Proto: 2})
			u.ask(test.effects...)
			u.answer(t, test.up)
			if got := u.took(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if u.outstanding() {
				t.Error("something is still owed")
			}
		})
	}
}

// Under OFF and SKIP the proxy's own replies are left out as well; SKIP is then used up.
func TestClientReplyAndLocalReplies(t *testing.T) {
	u := newUnplugged(upstream.Identity{Proto: 2})
	u.ask(commands.ReplySkip)
	u.answer(t, "+OK\r\n")
	u.Reply([]byte("+skipped\r\n"), InTurn)
	u.Reply([]byte("+seen\r\n"), InTurn)
	u.ask(commands.ReplyOff)
	u.Reply([]byte("+off in its turn\r\n"), InTurn)
	u.answer(t, "+OK\r\n")
	u.Reply([]byte("+off\r\n"), InTurn)
	u.ask(commands.ReplyOn)
	u.Reply([]byte("+on\r\n"), InTurn)
	u.answer(t, "+OK\r\n")
	if got := u.took(); got != "+seen\r\n+OK\r\n+on\r\n" {
		t.Errorf("got %q", got)
	}
}

// After a subscription within MULTI, the number of replies to EXEC is unknown. So everything that
// comes is passed on unchanged, and nothing waits for a turn that never comes.
func TestSubscribeWithinMulti(t *testing.T) {
	const confirmed = "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n" +
		"*3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"
	u := newUnplugged(upstream.Identity{Proto: 2})
	u.ask(commands.Multi)
	u.Relay(Request{Expect: Expect{Effect: commands.Subscribe, Count: 2}}, nil)
	u.ask(commands.Exec, commands.NoEffect)
	waiting := u.Barrier()
	u.Reply([]byte("+local\r\n"), InTurn)
	u.answer(t, "+OK\r\n+QUEUED\r\n*1\r\n"+confirmed)
	got, want := u.took(), "+OK\r\n+QUEUED\r\n*1\r\n"+confirmed
	if len(got) != len(want)+len("+local\r\n") {
		t.Errorf("got %q, want %q and the local reply", got, want)
	}
	if !waiting.Arrived() {
		t.Error("a barrier from before holds")
	}
	if state, settled := u.State(); !state.Has(Untracked) || !settled || state.Plain() {
		t.Errorf("opaque %v, settled %v", state.Has(Untracked), settled)
	}
	u.answer(t, "*2\r\n$4\r\npong\r\n$0\r\n\r\n")
	if got := u.took(); got != "*2\r\n$4\r\npong\r\n$0\r\n\r\n" {
		t.Errorf("got %q", got)
	}
	// Nothing is counted any more, so nothing is kept.
	u.ask(commands.Select, commands.NoEffect, commands.Select)
	if got := u.c.pending.len(); got != 0 {
		t.Errorf("%d entries that nothing will answer", got)
	}
	if !u.Barrier().Arrived() || u.outstanding() {
		t.Error("a barrier holds, or something is outstanding")
	}
	u.Reply([]byte("+at once\r\n"), InTurn)
	if got := u.took(); got != "+at once\r\n" {
		t.Errorf("got %q", got)
	}
}

// Redis as of 7.2 does not say within EXEC that it refuses a login. So the client is given what
// comes, and nobody is taken to have logged in, nor gets the connection, if the array can have been
// filled by replies to what came behind EXEC.
func TestRefusedLoginWithinMulti(t *testing.T) {
	login := &upstream.Identity{User: "ann", Password: "wrong", LoggedIn: true}
	auth := Expect{Effect: commands.Auth, Change: login}
	hello := Expect{Effect: commands.Hello, Change: login}
	plain, other := []commands.Effect{commands.NoEffect}, []commands.Effect{commands.Select}
	for _, test := range []struct {
		name      string
		queued    Expect
		replies   string // to EXEC, and to what is behind it
		behind    []commands.Effect
		untracked bool
	}{
		{"refused", auth, "*1\r\n+OK\r\n", plain, true},
		{"refused, as is what is behind", auth, "*1\r\n-ERR no\r\n", other, true},
		{"HELLO refused", hello, "*1\r\n+OK\r\n", other, true},
		{"HELLO that could not be read", Expect{Effect: commands.Hello}, "*1\r\n+OK\r\n", other, true},
		{"accepted, and nothing behind", auth, "*1\r\n+OK\r\n", nil, false},
		{"refused by Redis 7.0", auth, "*1\r\n-WRONGPASS no\r\n", nil, false},
		{"not run", auth, "*-1\r\n", plain, false},
		{"HELLO without a login", Expect{Effect: commands.Hello, Change: &upstream.Identity{Proto: 3}},
			"*1\r\n*0\r\n", plain, false},
		{"no login", Expect{Effect: commands.Select}, "*1\r\n+OK\r\n", plain, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := newUnplugged(upstream.Identity{Proto: 2})
			u.ask(commands.Multi)
			u.Relay(Request{Expect: test.queued}, nil)
			u.ask(commands.Exec)
			u.ask(test.behind...)
			u.answer(t, "+OK\r\n+QUEUED\r\n"+test.replies)
			if got, want := u.took(), "+OK\r\n+QUEUED\r\n"+test.replies; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			u.ask(commands.Reset)
			state, _ := u.State()
			if state.Has(Untracked) != test.untracked {
				t.Errorf("untracked is %v, want %v", state.Has(Untracked), test.untracked)
			}
			if !test.untracked {
				return
			}
			u.answer(t, "+RESET\r\n")
			if state, _ := u.State(); state.Has(Untracked) || state.LoggedIn || !state.Has(notForOthers) {
				t.Errorf("after RESET untracked is %v, logged in %v, given to others %v",
					state.Has(Untracked), state.LoggedIn, !state.Has(notForOthers))
			}
		})
	}
}

// Behind SYNC come no replies: what was asked before is still answered.
func TestReplicationStream(t *testing.T) {
	u := newUnplugged(upstream.Identity{Proto: 2})
	u.ask(commands.NoEffect, commands.Replicate)
	u.answer(t, ":1\r\n")
	const stream = "$3\r\nRDBx*1\r\nnot\x00a reply"
	u.answer(t, stream)
	if state, _ := u.State(); !state.Has(Streaming) {
		t.Error("the stream is taken for replies")
	}
	if got := u.took(); got != ":1\r\n"+stream {
		t.Errorf("got %q", got)
	}
}

// A refused SYNC, as within MULTI, is answered by an error, and replies follow as before.
func TestReplicationRefused(t *testing.T) {
	u := newUnplugged(upstream.Identity{Proto: 2})
	u.ask(commands.Replicate, commands.NoEffect)
	u.answer(t, "-ERR no\r\n:1\r\n")
	if state, settled := u.State(); state.Has(Streaming) || !settled || u.c.pending.len() != 0 {
		t.Errorf("Raw %v, settled %v, %d owed", state.Has(Streaming), settled, u.c.pending.len())
	}
}

// A request that the client didn't complete is owed no answer; earlier ones are.
func TestWithdraw(t *testing.T) {
	u := newUnplugged(upstream.Identity{Proto: 2})
	u.ask(commands.Select, commands.NoEffect, commands.NoEffect)
	u.Relay(Request{Piece: Broken}, nil)
	u.answer(t, "+OK\r\n")
	u.Reply([]byte("-later\r\n"), InTurn)
	u.answer(t, ":1\r\n")
	if got := u.took(); got != "+OK\r\n:1\r\n-later\r\n" || u.c.pending.len() != 0 {
		t.Errorf("got %q, %d owed", got, u.c.pending.len())
	}
	u.ask(commands.Multi)
	u.Relay(Request{Piece: Broken}, nil)
	if _, settled := u.State(); !settled || u.outstanding() {
		t.Error("a withdrawn request is still waited for")
	}
	u.Relay(Request{Piece: Broken}, nil) // it may have been answered before
}

func TestIsMonitorLine(t *testing.T) {
	for line, want := range map[string]bool{
		`1700000000.123456 [0 127.0.0.1:5000] "PING"`: true,
		`1700000000.123456 [15 lua] "PING"`:           true,
		`1.123456 [0 unix:/run/redis.sock] "GET" "k"`: true,
		"OK":                         false,
		"QUEUED":                     false,
		"":                           false,
		"1700000000.123456":          false,
		"1700000000.123456 [":        false,
		"1700000000":                 false,
		".123456 [0 127.0.0.1:5000]": false,
		"1700000000.123456 0 127.0":  false,
	} {
		if got := commands.IsMonitorLine([]byte(line)); got != want {
			t.Errorf("%q: got %v", line, got)
		}
	}
}

// MONITOR's feed comes between replies and answers none of them, even where a status would.
func TestMonitorFeed(t *testing.T) {
	const line = "+1700000000.123456 [0 127.0.0.1:5000] \"PING\"\r\n"
	u := newUnplugged(upstream.Identity{Proto: 2})
	u.ask(commands.Monitor, commands.NoEffect, commands.Multi)
	u.answer(t, "+OK\r\n"+line+"+PONG\r\n"+line+"+OK\r\n"+line)
	if state, settled := u.State(); !state.Has(InMulti) || !settled {
		t.Errorf("in MULTI %v, settled %v", state.Has(InMulti), settled)
	}
	u.Relay(Request{Instead: []byte("-ERR in multi\r\n")}, nil)
	u.answer(t, line+"-ERR x\r\n"+line)
	u.ask(commands.Discard)
	u.answer(t, "+OK\r\n")
	own := u.Do(nil, []byte(nil))[0]
	u.answer(t, line+":5\r\n")
	if v, err := own.Value(); err != nil || v.Int != 5 {
		t.Errorf("the proxy's own request: %+v, %v", v, err)
	}
	want := "+OK\r\n" + line + "+PONG\r\n" + line + "+OK\r\n" + line + line + "-ERR in multi\r\n" +
		line + "+OK\r\n" + line
	if got := u.took(); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// A second MONITOR is answered only if it is refused. Neither what is answered behind it nor
// another error that names it is that refusal.
func TestMonitorOnceMore(t *testing.T) {
	const (
		refused = "-NOPERM User ann has no permissions to run the 'monitor' command\r\n"
		arity   = "-ERR wrong number of arguments for 'monitor' command\r\n"
	)
	again, more := Expect{Effect: commands.Monitor}, Expect{Effect: commands.Monitor, Count: 1}
	for _, c := range []struct {
		name   string
		asked  []Expect
		answer string
	}{
		{"it is ignored", []Expect{again, {}, {}}, "+PONG\r\n+PONG\r\n"},
		{"it is refused", []Expect{again, {}, {}}, refused + "+PONG\r\n+PONG\r\n"},
		{"another error comes", []Expect{again, more, {}}, arity + "+PONG\r\n"},
		{"something is answered before another is refused", []Expect{again, {}, more, {}},
			"+PONG\r\n" + refused + "+PONG\r\n"},
		{"one of two is refused", []Expect{again, again, {}}, refused + "+PONG\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			u := newUnplugged(upstream.Identity{Proto: 2})
			u.ask(commands.Monitor)
			u.answer(t, "+OK\r\n")
			for _, e := range c.asked {
				u.Relay(Request{Expect: e}, nil)
			}
			u.answer(t, c.answer)
			if u.outstanding() {
				t.Error("something is outstanding")
			}
			u.Reply([]byte("+end\r\n"), InTurn)
			if got, want := u.took(), "+OK\r\n"+c.answer+"+end\r\n"; got != want {
				t.Errorf("got %q\nwant %q", got, want)
			}
		})
	}
}

// Of a transaction's changes, only those take effect that didn't fail.
func TestFailedWithinExec(t *testing.T) {
	l := &pendingQueue{State: newState(upstream.Identity{Proto: 2})}
	feed := func(e Expect, reply string) {
		var s resp.Scanner
		l.push(pendingReply{Expect: e})
		l.destination(reply[0])
		if _, done, err := s.Scan([]byte(reply)); !done || err != nil {
			t.Fatalf("%q: %v, %v", reply, done, err)
		}
		l.complete(s.Head())
	}
	feed(Expect{Effect: commands.Multi}, "+OK\r\n")
	feed(Expect{}, "+QUEUED\r\n")
	feed(Expect{Effect: commands.Select, Change: &upstream.Identity{DB: 3}}, "+QUEUED\r\n")
	feed(Expect{Effect: commands.Select, Change: &upstream.Identity{DB: 99}}, "+QUEUED\r\n")
	feed(Expect{Effect: commands.Exec},
		"*3\r\n*1\r\n-ERR nested\r\n+OK\r\n-ERR DB index is out of range\r\n")
	if l.DB != 3 || l.Has(InMulti) || l.Has(Untracked) {
		t.Errorf("database %d, in MULTI %v, opaque %v", l.DB, l.Has(InMulti), l.Has(Untracked))
	}
}
