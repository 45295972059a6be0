package passthrough

import (
	"context"
	"io"
	"net"
	"testing"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/panics"
	"lockproxy/internal/socket"
	"lockproxy/internal/test/testwait"
)

// awaitLeft waits until something lies in a spare.
func awaitLeft(t *testing.T, s *scripted) {
	t.Helper()
	testwait.Until(t, "it has come", func() bool {
		s.lanes.spares.mu.Lock()
		defer s.lanes.spares.mu.Unlock()
		n, _ := socket.New(s.lanes.spares.list[0].Conn).Peek()
		return n > 0
	})
}

// A spare on which anything has come since it was opened serves nobody, be it a push: no Redis sends
// one there, and what may be behind it would answer the client's first request.
func TestNothingLiesInASpare(t *testing.T) {
	for _, said := range []string{">1\r\n+push\r\n", ">1\r\n+push\r\n+STRAY\r\n", "+STRAY\r\n", ">"} {
		s := newScripted(t, 1)
		far := s.addSpare(t, 0, false)
		io.WriteString(far, said)
		awaitLeft(t, s)
		if found, ok := s.lanes.popSpare(true); ok {
			found.Close()
			t.Errorf("behind %q a client gets it", said)
		}
	}
}

// A reply too many that comes once a client has the connection answers the proxy's own first
// request, and is noticed by that: the client is given nothing.
func TestStrayReplyBeforeTheLabels(t *testing.T) {
	for _, strays := range []string{"+STRAY\r\n+OK\r\n+value\r\n", "+STRAY\r\n",
		"+STRAY\r\n-ERR of another\r\n+OK\r\n+value\r\n"} {
		s := newScripted(t, 1)
		s.lanes.Upstream.Addr = "127.0.0.1:1" // nobody answers there
		s.lanes.OnPanic = func(_ net.Addr, fault *panics.Panic) {
			t.Errorf("%q: %s in %s", strays, fault.What, fault.Stack)
		}
		c := s.client(t)
		c.c.pending.Name = "me"
		far := s.addSpare(t, 0, false)
		if !c.inLoop(&eventloop.Iteration{}, Home, "GET", "k") {
			t.Fatal("the request has to wait")
		}
		reads(t, far, "CLIENT", "SETNAME", "me")
		reads(t, far, "GET", "k")
		io.WriteString(far, strays)
		closesUnanswered(t, c)
	}
}

// closesUnanswered fails unless a client is closed, and is given nothing before.
func closesUnanswered(t *testing.T, c *scriptedClient) {
	t.Helper()
	if got, err := io.ReadAll(c.in); len(got) > 0 || err != nil {
		t.Errorf("the client is given %q, %v", got, err)
	}
}

// The same holds of the login behind RESET.
func TestStrayReplyBeforeTheLogin(t *testing.T) {
	s := newScripted(t, 0)
	s.lanes.Upstream.Addr = "127.0.0.1:1" // nobody answers there
	id := &s.lanes.Upstream.Initial
	id.User, id.Password, id.LoggedIn = "ann", "pw", true
	c := s.client(t)
	near, far := tcpPair(t)
	c.homes.beginHome(spare{Conn: near})
	c.Route(context.Background(), Home, nil)
	c.c.pending.fresh = true // RESET has been answered
	c.Flush(nil)
	reads(t, net.Conn(far), "AUTH", "ann", "pw")
	c.Relay(Request{Raw: []byte(probing)}, nil)
	c.Flush(nil)
	reads(t, far, "PING")
	io.WriteString(far, "+STRAY\r\n+OK\r\n+PONG\r\n")
	closesUnanswered(t, c)
}
