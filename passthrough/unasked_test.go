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
		u.home.reportLoss(err)
		if got := u.took(); got != test.given || !u.isClosed() {
			t.Errorf("%q %q: the client is given %q, closed %v", test.asked, test.said, got,
				u.isClosed())
		}
	}
}

// Where Redis lets no client in, one that has sent several requests already is told once, and
// closed. It may have been told so by a home that was let in: then the requests behind it are lost.
func TestRefusedConnectionClosesTheClient(t *testing.T) {
	for _, test := range []struct {
		before, given string
		closed        bool
	}{
		{"", full, true},
		{"+PONG\r\n", "+PONG\r\n" + full + "-UPSTREAM lost\r\n", false},
	} {
		u := newUnplugged(upstream.Identity{Proto: 2})
		u.pool.cancel() // nobody is asked whether the upstream serves
		u.home.conn = &clientEnd{}
		if test.before != "" {
			u.ask(commands.NoEffect)
		}
		u.ask(commands.NoEffect, commands.NoEffect)
		u.answer(t, test.before+full)
		u.home.reportLoss(io.EOF)
		if got := u.took(); got != test.given || u.isClosed() != test.closed {
			t.Errorf("behind %q the client is given %q, closed %v", test.before, got, u.isClosed())
		}
	}
}
