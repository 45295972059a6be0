package passthrough

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// A reply of the proxy's own behind nothing goes out at once; behind something, in its turn.
func TestPendingLocalReplies(t *testing.T) {
	u := newUnplugged(upstream.Identity{Proto: 2})
	u.Reply([]byte("+first\r\n"), InTurn)
	if got := u.took(); got != "+first\r\n" {
		t.Fatalf("got %q", got)
	}
	u.ask(commands.NoEffect)
	u.Reply([]byte("+second\r\n"), InTurn)
	before := u.Barrier()
	u.ask(commands.NoEffect)
	u.Reply([]byte("+third\r\n"), InTurn)
	u.Reply([]byte("+fourth\r\n"), InTurn)
	behind := u.Barrier()
	if got := u.took(); got != "" || before.Arrived() {
		t.Fatalf("before its turn: %q", got)
	}
	u.answer(t, "$5\r\nhe")
	if got := u.took(); got != "$5\r\nhe" {
		t.Fatalf("the beginning of a reply is kept back: got %q", got)
	}
	u.answer(t, "llo\r\n")
	if got := u.took(); got != "llo\r\n+second\r\n" || !before.Arrived() || behind.Arrived() {
		t.Fatalf("got %q", got)
	}
	u.answer(t, ":1\r\n")
	if got := u.took(); got != ":1\r\n+third\r\n+fourth\r\n" || !behind.Arrived() {
		t.Fatalf("got %q", got)
	}
	if !u.Barrier().Arrived() {
		t.Fatal("a barrier behind nothing holds")
	}
}

// A run of plain requests costs one entry, however long it is.
func TestPendingRunsAreOneEntry(t *testing.T) {
	u := newUnplugged(upstream.Identity{Proto: 2})
	const n = 100_000
	for range n {
		u.ask(commands.NoEffect)
	}
	if got := u.c.pending.len(); got != 1 {
		t.Errorf("%d entries", got)
	}
	u.answer(t, strings.Repeat(":1\r\n", n-1))
	if !u.outstanding() {
		t.Error("nothing is outstanding, one reply is")
	}
	u.answer(t, ":1\r\n")
	if u.outstanding() {
		t.Error("something is outstanding")
	}
}

// Replied is called for its own request's reply alone.
func TestPendingReplied(t *testing.T) {
	u := newUnplugged(upstream.Identity{Proto: 2})
	var got []string
	replied := func(name string) Expect {
		return Expect{Replied: func(h resp.Head) {
			got = append(got, name+" "+string(h.Type)+string(h.Line))
		}}
	}
	u.ask(commands.NoEffect)
	u.Relay(Request{Expect: replied("first")}, nil)
	u.ask(commands.NoEffect)
	u.ask(commands.NoEffect)
	u.Relay(Request{Expect: replied("refused")}, nil)
	u.Relay(Request{Expect: replied("last")}, nil)
	u.ask(commands.NoEffect)
	for i, reply := range []string{
		"+OK\r\n", ":0\r\n", "+OK\r\n", "+OK\r\n", "-NOPERM no\r\n", "$-1\r\n", "+OK\r\n",
	} {
		u.answer(t, reply)
		if want := []int{0, 1, 1, 1, 2, 3, 3}[i]; len(got) != want {
			t.Errorf("after reply %d: %q, want %d calls", i, got, want)
		}
	}
	if strings.Join(got, ", ") != "first :0, refused -NOPERM no, last $-1" {
		t.Errorf("called for %q", got)
	}
}

// A queue that has been emptied gives its memory back.
func TestPendingForgets(t *testing.T) {
	u := newUnplugged(upstream.Identity{Proto: 2})
	for range maxEntries {
		u.ask(commands.Select)
	}
	u.answer(t, strings.Repeat("+OK\r\n", maxEntries))
	if got := cap(u.c.pending.entries.All()); got > 64 {
		t.Errorf("room for %d entries is kept", got)
	}
	// Never quite empty, it doesn't grow either.
	u.ask(commands.Select)
	for range 100_000 {
		u.ask(commands.Select)
		u.answer(t, "+OK\r\n")
	}
	if got := cap(u.c.pending.entries.All()); got > 16*1024 {
		t.Errorf("room for %d entries after many that came and went", got)
	}
}

func TestPendingLoss(t *testing.T) {
	gone := errors.New("gone")
	const lost = "-UPSTREAM lost\r\n"
	for _, test := range []struct {
		name    string
		prepare func(u *unplugged)
		want    string
	}{
		{"nothing is owed", func(u *unplugged) {}, ""},
		{"each request is told", func(u *unplugged) {
			u.ask(commands.NoEffect, commands.NoEffect,
				commands.Select)
		}, lost + lost + lost},
		{"some are answered", func(u *unplugged) {
			u.ask(commands.NoEffect, commands.NoEffect, commands.NoEffect)
			u.answer(t, ":1\r\n:2\r\n")
		}, ":1\r\n:2\r\n" + lost},
		{"local replies keep their turn", func(u *unplugged) {
			u.ask(commands.NoEffect)
			u.Reply([]byte("+local\r\n"), InTurn)
			u.ask(commands.NoEffect)
		}, lost + "+local\r\n" + lost},
		{"an overridden reply is lost too", func(u *unplugged) {
			u.Relay(Request{Instead: []byte("-ERR in multi\r\n")}, nil)
		}, lost},
		{"within a reply nothing can be said", func(u *unplugged) {
			u.ask(commands.NoEffect, commands.NoEffect)
			u.answer(t, "$5\r\nab")
		}, "$5\r\nab"},
		{"QUIT expects it", func(u *unplugged) { u.ask(commands.NoEffect, commands.Quit) }, lost},
		{"so does SHUTDOWN", func(u *unplugged) { u.ask(commands.Closes, commands.NoEffect) }, ""},
		{"silence was asked for", func(u *unplugged) {
			u.ask(commands.ReplyOff, commands.NoEffect)
			u.answer(t, "+OK\r\n")
		}, ""},
		{"each missing confirmation is told", func(u *unplugged) {
			u.Relay(Request{Expect: Expect{Effect: commands.Subscribe, Count: 3}}, nil)
			u.answer(t, "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
		}, "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n" + lost + lost},
		{"what is said of many is bounded", func(u *unplugged) {
			for range 1_000_000 {
				u.ask(commands.NoEffect)
			}
		}, "bounded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := newUnplugged(upstream.Identity{Proto: 2})
			test.prepare(u)
			u.homeLost(gone, u.c.home.replies.within())
			got := u.took()
			if test.want == "bounded" {
				if len(got) > maxLostText+len(lost) || !strings.HasPrefix(got, lost+lost) {
					t.Errorf("%d bytes: %.50q", len(got), got)
				}
			} else if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if !u.isClosed() {
				t.Error("the client is not closed")
			}
			if u.outstanding() {
				t.Error("something is outstanding")
			}
		})
	}
}

func TestPendingLossOfOwnRequest(t *testing.T) {
	gone := errors.New("gone")
	u := newUnplugged(upstream.Identity{Proto: 2})
	before, barrier := u.Do(nil, []byte(nil))[0], u.Barrier()
	u.homeLost(gone, false)
	if !barrier.Arrived() {
		t.Error("a barrier from before holds")
	}
	if u.isClosed() {
		t.Error("the client is closed before the session could say what happened")
	}
	_, err := before.Value()
	var lost *upstream.Error
	if !errors.As(err, &lost) || !lost.Sent || !errors.Is(err, gone) {
		t.Errorf("before the loss: %v", err)
	}
	// A request after the loss is answered at once.
	if _, err := u.Do(nil, []byte(nil))[0].Value(); !errors.As(err, &lost) {
		t.Errorf("behind the loss: %v", err)
	}
	if !u.Barrier().Arrived() {
		t.Error("a barrier behind the loss holds")
	}
	if got := u.took(); got != "" {
		t.Errorf("the client was told %q of what it hadn't asked", got)
	}
}

func TestPendingUpstreamThatIsNoRedis(t *testing.T) {
	u := newUnplugged(upstream.Identity{Proto: 2})
	u.ask(commands.NoEffect)
	if err := u.feed([]byte("HTTP/1.1 400 Bad Request\r\n")); err == nil {
		t.Error("it is passed on as a reply")
	}
}

// An answer to the proxy's own request is kept in memory, so its size is bounded. One that is larger
// fails alone.
func TestPendingOwnReplyIsBounded(t *testing.T) {
	u := newUnplugged(upstream.Identity{Proto: 2})
	answers := u.Do(nil, []byte(nil), []byte(nil))
	pieces, piece := 2*maxCall>>20, strings.Repeat("x", 1<<20)
	u.answer(t, fmt.Sprintf("$%d\r\n", pieces<<20))
	for range pieces {
		u.answer(t, piece)
		if kept := len(u.c.home.replies.collected); kept > maxCall {
			t.Fatalf("%d bytes are kept", kept)
		}
	}
	u.answer(t, "\r\n+next\r\n")
	if raw, err := answers[0].Raw(); err != errTooLarge || raw != nil {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if raw, err := answers[1].Raw(); err != nil || string(raw) != "+next\r\n" {
		t.Errorf("%q, %v", raw, err)
	}
}

// Under CLIENT REPLY OFF a subscriber gets messages, but no reply to PING, wherever reads end.
func TestPingOfAMutedSubscriber(t *testing.T) {
	const (
		confirmed = "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"
		message   = "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n"
		pong      = "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
	)
	const sent = message + pong + message + pong
	for cut := range len(sent) {
		u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 2})
		u.ask(commands.ReplyOff, commands.Subscribe)
		u.answer(t, "+OK\r\n"+confirmed)
		u.ask(commands.NoEffect, commands.NoEffect)
		u.answer(t, sent[:cut])
		u.answer(t, sent[cut:])
		if got := u.took(); got != confirmed+message+message || u.outstanding() {
			t.Fatalf("cut at %d: the client is given %q", cut, got)
		}
	}
}

// Many replies at once leave no memory behind.
func TestForgetManyPieces(t *testing.T) {
	d := demux{out: make([][]byte, 16<<10)}
	if d.forget(); cap(d.out) > maxIdlePieces {
		t.Errorf("room for %d pieces is kept", cap(d.out))
	}
}

// A client that would survive the end of a home or a lane does not if more replies are missing than
// can be made up.
func TestTooManyLostReplies(t *testing.T) {
	gone := errors.New("gone")
	for _, n := range []int{maxLost, 1_000_000} {
		for name, lose := range map[string]func(u *unplugged){
			"home": func(u *unplugged) { u.c.home.reportLoss(gone) },
			"lane": func(u *unplugged) { u.c.laneLost(gone, n, 0, false) },
		} {
			u := newUnplugged(upstream.Identity{Proto: 2})
			u.c.home.c.pool = u.c.pool
			u.c.home.Conn, _ = tcpPair(t)
			for range n {
				u.ask(commands.NoEffect)
			}
			lose(u)
			got := len(u.took())
			if closed := u.isClosed(); closed != (n > maxLost) {
				t.Errorf("%s, %d lost: closed is %v", name, n, closed)
			}
			if n > maxLost && got > 2*maxLostText {
				t.Errorf("%s, %d lost: %d bytes", name, n, got)
			}
		}
	}
}

// What can block is known until it is answered, also among plain requests, which share entries.
func TestBlocks(t *testing.T) {
	var q pendingQueue
	plain := pendingReply{}
	for i, step := range []struct {
		e    pendingReply
		want bool
	}{{plain, false}, {pendingReply{Expect: Expect{Blocks: true}}, true}, {plain, true}, {plain, true}} {
		if q.push(step.e); q.blocks() != step.want {
			t.Errorf("behind entry %d: %t", i, q.blocks())
		}
	}
	for _, want := range []bool{true, false} {
		if q.pop(); q.blocks() != want {
			t.Errorf("want %t", want)
		}
	}
}
