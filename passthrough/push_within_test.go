package passthrough

import (
	"strings"
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// invalidation is what Redis up to 7.0 puts into the reply of the command that it is running, if
// somebody redirects the invalidations of a key to that connection.
const invalidation = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nb\r\n"

// newUnpluggedLane returns a lane, and so many clients that each use it.
func newUnpluggedLane(n int) (l *lane, clients []*unplugged) {
	for range n {
		c := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 3})
		c.c.home, c.c.route = nil, byLane
		clients = append(clients, c)
	}
	return newLane(poolKey{}, &clientEnd{}, clients[0].c.pool), clients
}

// asks sends requests by the lane for a client.
func (l *lane) asks(t *testing.T, c *unplugged, n int) {
	t.Helper()
	for range n {
		if err := l.takes(&c.c, pendingReply{}, probing); err != nil {
			t.Fatal(err)
		}
	}
	l.Flush()
	l.writers.Wait()
}

// Behind a push within a reply nobody can tell what is whose. So the lane ends, and nobody is given
// anything of that reply or of what follows: only its own client can have had its beginning, and is
// closed then.
func TestPushWithinAReplyEndsTheLane(t *testing.T) {
	const before, begun = "+before\r\n", "*2\r\n$1\r\na\r\n"
	const said = before + begun + invalidation + "$1\r\nb\r\n+second\r\n+third\r\n"
	noticed := len(before+begun) + strings.Index(invalidation, "\n") + 1
	for at := range len(said) {
		l, clients := newUnpluggedLane(3)
		l.asks(t, clients[0], 2)
		l.asks(t, clients[1], 1)
		l.asks(t, clients[2], 1)
		err := l.Consume([]byte(said[:at]), nil)
		if err == nil {
			err = l.Consume([]byte(said[at:]), nil)
		}
		if err != resp.ErrPushWithin {
			t.Fatalf("cut at %d: %v", at, err)
		}
		l.reportLoss(err)
		want, closed := before+"-UPSTREAM lost\r\n", false
		if at > len(before) && at < noticed {
			want, closed = said[:at], true
		}
		for i, c := range clients {
			if got := c.took(); got != want || c.isClosed() != closed {
				t.Errorf("cut at %d: client %d is given %q, closed %v", at, i, got, c.isClosed())
			}
			want, closed = "-UPSTREAM lost\r\n", false
		}
	}
}

// What comes in one piece with a reply that is wrong, and before it, is still its client's.
func TestRepliesBeforeWhatIsNoReply(t *testing.T) {
	l, clients := newUnpluggedLane(1)
	c := clients[0]
	l.asks(t, c, 3)
	if err := l.Consume([]byte("$1\r\na\r\n+b\r\n?\r\n"), nil); err == nil {
		t.Fatal("the lane goes on")
	} else {
		l.reportLoss(err)
	}
	if got := c.took(); got != "$1\r\na\r\n+b\r\n-UPSTREAM lost\r\n" {
		t.Errorf("got %q", got)
	}
}

// The client of a home is given a reply with a push within as it comes, like directly. No request
// can be told its reply any more.
func TestPushWithinAReplyAtHome(t *testing.T) {
	const said = "*2\r\n$1\r\na\r\n" + invalidation + "$1\r\nb\r\n+PONG\r\n"
	for at := range len(said) {
		u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 3})
		u.ask(commands.NoEffect, commands.NoEffect)
		u.answer(t, said[:at])
		u.answer(t, said[at:])
		state, settled := u.State()
		if got := u.took(); got != said || !state.Has(Untracked) || !settled {
			t.Errorf("cut at %d: given %q, untracked %v, settled %v", at, got, state.Has(Untracked),
				settled)
		}
	}
}

// What the proxy itself waits for would be told wrong answers: the home ends, and nobody is given
// anything of such a reply.
func TestPushWithinAReplyEndsAHomeThatOwesTheProxy(t *testing.T) {
	const said = "*2\r\n$1\r\na\r\n" + invalidation + "$1\r\nb\r\n"
	for name, ask := range map[string]func(*unplugged){
		"its own answer": func(u *unplugged) { u.Do(nil, []byte(probing)) },
		"an answer behind": func(u *unplugged) {
			u.ask(commands.NoEffect)
			u.Do(nil, []byte(probing))
		},
		"a reply that is not passed on": func(u *unplugged) { u.Relay(Request{Discarded: true}, nil) },
	} {
		u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 3})
		ask(u)
		err := u.feed([]byte(said))
		if got := u.took(); err != resp.ErrPushWithin || got != "" {
			t.Errorf("%s: %v, given %q", name, err, got)
		}
	}
}

// A push within a push is none of Redis's: the home that sends it next to a lane ends.
func TestPushWithinAPushNextToALane(t *testing.T) {
	u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 3})
	u.c.route = byLane
	if err := u.feed([]byte(">2\r\n:1\r\n>1\r\n:2\r\n")); err != resp.ErrPushWithin {
		t.Error(err)
	}
}
