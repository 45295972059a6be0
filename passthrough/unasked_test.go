package passthrough

import (
	"io"
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/upstream"
)

const full = "-ERR max number of clients reached\r\n"

// What the upstream says to a client that has asked nothing is no answer to what the client asks
// next. An error is passed on before the client is closed, as Redis closes it; anything else is
// not.
func TestUnaskedReplyClosesTheClient(t *testing.T) {
	for _, test := range []struct{ asked, said, given string }{
		{"", full, full},
		{"", full + "more", full + "more"},
		{"", "+OK\r\n", ""},
		{"", "$5\r\nhello\r\n", ""},
		{"", "*1\r\n$1\r\nx\r\n", ""},
		{"+PONG\r\n", full, "+PONG\r\n" + full},
		{"+PONG\r\n", "+PONG\r\n", "+PONG\r\n"},
		{"-NOAUTH\r\n", full, "-NOAUTH\r\n" + full},
	} {
		u := newUnplugged(upstream.Identity{Proto: 2})
		if test.asked != "" {
			u.ask(commands.NoEffect)
		}
		err := u.feed([]byte(test.asked + test.said))
		if err == nil {
			t.Errorf("%q %q: the connection is used further", test.asked, test.said)
			continue
		}
		u.c.home.reportLoss(err)
		if got := u.took(); got != test.given || !u.isClosed() {
			t.Errorf("%q %q: the client is given %q, closed %v", test.asked, test.said, got,
				u.isClosed())
		}
	}
}

// Where Redis lets no client in, one that has sent several requests already is told once, and
// closed. It may have been told so by a home that was let in: then the requests behind it are lost.
func TestRefusalIsToldOnce(t *testing.T) {
	for _, test := range []struct {
		before, given string
		closed        bool
	}{
		{"", full, true},
		{"+PONG\r\n", "+PONG\r\n" + full + "-UPSTREAM lost\r\n", false},
	} {
		u := newUnplugged(upstream.Identity{Proto: 2})
		u.c.pool.cancel() // nobody is asked whether the upstream serves
		u.c.home.Conn = &clientEnd{}
		if test.before != "" {
			u.ask(commands.NoEffect)
		}
		u.ask(commands.NoEffect, commands.NoEffect)
		u.answer(t, test.before+full)
		u.c.home.reportLoss(io.EOF)
		if got := u.took(); got != test.given || u.isClosed() != test.closed {
			t.Errorf("behind %q the client is given %q, closed %v", test.before, got, u.isClosed())
		}
	}
}

// Redis 7.0 puts a message that a transaction sends to its own client into EXEC's array, which does
// not count it. What comes behind the seeming end is EXEC's too. It is passed on, but no request
// can be told its reply any more.
func TestMessageWithinExec(t *testing.T) {
	const message = ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nhello\r\n"
	const said = "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n" + message + ":1\r\n+PONG\r\n"
	for at := range said {
		for _, pipelined := range []bool{false, true} {
			u := newUnplugged(upstream.Identity{Proto: 3})
			u.ask(commands.Multi, commands.NoEffect, commands.NoEffect, commands.Exec)
			if pipelined {
				u.ask(commands.NoEffect)
			}
			u.answer(t, said[:at])
			u.answer(t, said[at:])
			if !pipelined {
				u.ask(commands.NoEffect)
			}
			u.answer(t, "+PONG\r\n")
			if got := u.took(); got != said+"+PONG\r\n" {
				t.Errorf("cut at %d, pipelined %v: got %q", at, pipelined, got)
			}
			if state, settled := u.State(); !state.Has(Untracked) || !settled {
				t.Errorf("cut at %d, pipelined %v: untracked %v, settled %v", at, pipelined,
					state.Has(Untracked), settled)
			}
		}
	}
}

// What comes by a home that has been given up for others is no reply to what its client asks by the
// next one, and nobody else gets that connection.
func TestUnaskedReplyByAHomeThatWasGivenUp(t *testing.T) {
	for _, said := range []string{"+stolen\r\n", "+st", ">1\r\n+push\r\n", full} {
		u := newUnplugged(upstream.Identity{Proto: 2})
		old := u.c.home
		old.phase = left
		u.c.home = &home{c: &u.c, connReader: connReader{rw: nowhere{}}}
		u.ask(commands.NoEffect)
		if err := old.Consume([]byte(said), nil); err == nil {
			t.Errorf("%q: the connection is used further", said)
		}
		u.answer(t, "+own\r\n")
		if got := u.took(); got != "+own\r\n" {
			t.Errorf("%q: the client is given %q", said, got)
		}
	}
}
