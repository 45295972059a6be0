package passthrough

import (
	"testing"

	"lockproxy/internal/commands"
	"lockproxy/internal/upstream"
)

// From the moment at which a client asks for numbers until it is told them, any connection may be
// among these; from then on, those are that were open before. It does not matter whether the answer
// comes, or is lost, or is EXEC's.
func TestNumbersAreShown(t *testing.T) {
	list := Request{Expect: Expect{Effect: commands.KnownID, Numbers: true}}
	for name, test := range map[string]struct {
		before string // what has been answered before
		ask    func(u *unplugged)
		answer string // "" for none: the home is lost
	}{
		"answered": {"", func(u *unplugged) { u.Relay(list, nil) }, "$2\r\nid\r\n"},
		"refused":  {"", func(u *unplugged) { u.Relay(list, nil) }, "-NOPERM\r\n"},
		"lost":     {"", func(u *unplugged) { u.Relay(list, nil) }, ""},
		"in a transaction": {"+OK\r\n+QUEUED\r\n", func(u *unplugged) {
			u.ask(commands.Multi)
			u.Relay(list, nil)
			u.ask(commands.Exec)
		}, "*1\r\n$2\r\nid\r\n"},
		"untracked, then lost": {"", func(u *unplugged) {
			u.c.pending.set(Untracked, true)
			u.Relay(list, nil)
		}, ""},
		"untracked twice, then reset": {"", func(u *unplugged) {
			u.c.pending.set(Untracked, true)
			u.Relay(list, nil)
			u.Relay(list, nil)
			u.ask(commands.Reset)
		}, "$2\r\nid\r\n$2\r\nid\r\n+RESET\r\n"},
	} {
		u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 2})
		n := &u.c.pool.numbers
		before := n.shown.Load()
		if !n.hidden(before) {
			t.Fatal("nobody has asked")
		}
		test.ask(u)
		if test.before != "" {
			u.answer(t, test.before)
		}
		if n.hidden(before) || n.hidden(n.shown.Load()) {
			t.Errorf("%s: a number is taken for hidden while it may be shown", name)
		}
		if test.answer != "" {
			u.answer(t, test.answer)
		} else {
			u.c.mu.Lock()
			u.c.closeLocked(ErrClosed)
			u.c.mu.Unlock()
		}
		if n.hidden(before) {
			t.Errorf("%s: a number is taken for hidden that was shown", name)
		}
		if !n.hidden(n.shown.Load()) {
			t.Errorf("%s: no later connection is ever hidden", name)
		}
	}
}

// A home that was open when a client asked for numbers, or is open while it asks, serves no other
// client; nor does a spare that was.
func TestNumbersOfHomes(t *testing.T) {
	s := newScripted(t, 1)
	s.lanes.Spares = 1
	s.lanes.Upstream.Addr = "127.0.0.1:1" // nobody answers there: no others are opened
	n := &s.lanes.numbers
	released := func(begin func()) bool {
		s.addSpare(t, 0, false)
		s.lanes.spares.mu.Lock()
		s.lanes.spares.list[0].numbersShown = n.shown.Load()
		s.lanes.spares.mu.Unlock()
		c := s.client(t)
		if !c.homes.takeHome() {
			t.Fatal("there is no spare")
		}
		begin()
		c.c.mu.Lock()
		old := c.c.home
		released := c.c.releaseHomeLocked()
		c.c.mu.Unlock()
		if released {
			<-old.ended
		}
		s.lanes.numbers.shown.Add(1) // nobody is to have that
		s.lanes.popSpare(true)
		c.End(AtOnce)
		c.Wait()
		return released
	}
	if !released(func() {}) {
		t.Error("nobody has asked for numbers, and the home is closed")
	}
	if released(n.asks) {
		t.Error("the home serves others while somebody asks")
	}
	if released(n.answered) {
		t.Error("the home serves others behind the answer")
	}
	s.addSpare(t, 0, false)
	n.shown.Add(1)
	if _, ok := s.lanes.popSpare(true); ok {
		t.Error("a spare serves a client behind the answer")
	}
}
