package passthrough

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/test/wire"
)

// enters returns a client that comes while Redis is known to let clients in, from a question asked
// before.
func (s *scripted) enters(t *testing.T) *scriptedClient {
	t.Helper()
	s.lanes.door.says(admitted, 0)
	c := s.client(t)
	c.c.pending.Admitted = false
	c.Enter(context.Background())
	if !c.c.pending.Admitted || c.c.doubt.Load() == 0 {
		t.Fatalf("admitted %v, in doubt %v", c.c.pending.Admitted, c.c.doubt.Load())
	}
	return c
}

// routes is Route in a goroutine, and in an event loop as far as that need not wait.
func (c *scriptedClient) routes(t *testing.T) {
	t.Helper()
	err := c.Route(context.Background(), Shared, &eventloop.Iteration{})
	if err == ErrWaits {
		err = c.Route(context.Background(), Shared, nil)
	}
	if err != nil && c.Lost() == false {
		t.Fatal(err)
	}
}

// A client that was let in by what Redis had said before it came is judged again when Redis has said
// something since. One that goes by a lane goes home, by a new connection; what Redis had let in on
// before does not serve it further.
func TestDoubtsEnd(t *testing.T) {
	for _, test := range []struct {
		name      string
		says      verdict
		spare     bool // the client has been given one
		state     func(c *client)
		admitted  bool // afterwards
		stays     bool // its home
		connected bool
	}{
		{"let in again", admitted, true, nil, true, true, true},
		{"no answer", unknown, true, nil, true, true, true},
		{"another refusal", refused, true, nil, true, true, true},
		{"refused", loginFirst, false, nil, false, false, true},
		{"refused, with a spare", loginFirst, true, nil, false, false, true},
		{"refused, within a transaction", loginFirst, true,
			func(c *client) { c.pending.set(InMulti, true) },
			true, false, false},
		{"refused, and known by its number", loginFirst, true,
			func(c *client) { c.pending.set(knownID, true) },
			true, false, false},
		{"refused, and has logged in", loginFirst, true,
			func(c *client) {
				s := &c.pending
				s.LoggedIn, s.User, s.Password = true, "ann", "pw"
			}, true, true, true},
		{"refused, after a large request", loginFirst, true,
			func(c *client) { c.needsHome.large = largeFor }, false, false, true},
	} {
		s := newScripted(t, 1)
		c := s.enters(t)
		c.openLane(t)
		if test.spare {
			s.addSpare(t, 0, false)
			if !c.homes.takeHome() {
				t.Fatal("there is no spare")
			}
		}
		home := c.c.home
		c.c.mu.Lock()
		if test.state != nil {
			test.state(&c.c)
		}
		c.c.mu.Unlock()
		s.lanes.door.says(test.says, 0)
		if c.c.mustLogIn() != (test.says == loginFirst) {
			t.Errorf("%s: must log in: %v", test.name, !(test.says == loginFirst))
		}
		c.c.mu.Lock()
		if c.c.mustLogIn() && !c.judgeAgainLocked(nil) {
			t.Errorf("%s: has to wait", test.name)
		}
		if c.c.pending.Admitted != test.admitted || (home != nil && c.c.home == home) != test.stays &&
			test.connected || (c.c.route != gone) != test.connected {
			t.Errorf("%s: admitted %v, home %v, route %v", test.name, c.c.pending.Admitted,
				c.c.home == home, c.c.route)
		}
		c.c.mu.Unlock()
		c.End(AtOnce)
		c.Wait()
	}
}

// A client in doubt that goes by a lane is asked for no more than its next request, which goes to
// Redis by a connection of its own.
func TestDoubtfulRequestGoesHome(t *testing.T) {
	s := newScripted(t, 1)
	c := s.enters(t)
	c.ask(t, "first")
	c.Flush(nil)
	lane := <-s.conns
	reads(t, lane, "first")
	io.WriteString(lane, "+first\r\n")
	if got := c.line(t); got != "+first" {
		t.Fatal(got)
	}
	s.lanes.door.says(loginFirst, 0)
	near, far := tcpPair(t)
	s.lanes.Upstream.Dialer = func(context.Context, string, string) (net.Conn, error) {
		return near, nil
	}
	c.routes(t)
	c.Relay(Request{Raw: wire.Append(nil, "second")}, nil)
	c.Flush(nil)
	reads(t, far, "second")
	io.WriteString(far, "-NOAUTH Authentication required.\r\n")
	if got := c.line(t); got != "-NOAUTH Authentication required." {
		t.Error(got)
	}
	if s, _ := c.State(); s.Admitted {
		t.Error("the client is let in")
	}
	c.End(AtOnce)
	c.Wait()
}

// A client that never lets its home owe nothing is judged all the same: the session, which an event
// loop leaves the request to, awaits what is owed.
func TestDoubtAwaitsWhatIsOwed(t *testing.T) {
	s := newScripted(t, 1)
	c := s.enters(t)
	far := s.addSpare(t, 0, false)
	if !c.inLoop(&eventloop.Iteration{}, Home, "first") {
		t.Fatal("the request has to wait")
	}
	reads(t, far, "first")
	s.lanes.door.says(loginFirst, 0)
	if err := c.Route(context.Background(), Home, &eventloop.Iteration{}); err != ErrWaits {
		t.Fatal("the event loop goes on: ", err)
	}
	if !c.AwaitsJudgement() {
		t.Fatal("the session does not wait")
	}
	owed := c.Barrier()
	io.WriteString(far, "+first\r\n")
	if got := c.line(t); got != "+first" {
		t.Fatal(got)
	}
	<-owed.Done
	if c.AwaitsJudgement() {
		t.Error("the session waits for nothing")
	}
	c.c.mu.Lock()
	if !c.judgeAgainLocked(nil) {
		t.Error("the client is not judged")
	}
	c.c.mu.Unlock()
	if s, _ := c.State(); s.Admitted {
		t.Error("the client is let in")
	}
	c.End(AtOnce)
	c.Wait()
}

// A subscriber may never ask for anything again: it is closed when its home is looked at.
func TestDoubtfulSubscriberIsClosed(t *testing.T) {
	for _, says := range []verdict{admitted, loginFirst} {
		s := newScripted(t, 1)
		s.lanes.HomeIdle = time.Hour
		c := s.enters(t)
		s.addSpare(t, 0, false)
		if !c.homes.takeHome() {
			t.Fatal("there is no spare")
		}
		c.c.mu.Lock()
		c.c.pending.set(subscribed, true)
		c.c.mu.Unlock()
		s.lanes.door.says(says, 0)
		c.homes.closeIdle() // as its timer does
		if closed := says == loginFirst; c.Lost() != closed {
			t.Errorf("says %v: closed %v", says, c.Lost())
		}
		c.End(AtOnce)
		c.Wait()
	}
}
