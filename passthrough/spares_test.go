package passthrough

import (
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/socket"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/internal/upstream"
)

// addSpare has a connection wait for its client, on which Redis was heard some time ago. It returns
// the upstream's end.
func (s *scripted) addSpare(t *testing.T, silent time.Duration, nobody bool) (far net.Conn) {
	t.Helper()
	near, far := tcpPair(t)
	s.spareOf(near, silent, nobody)
	return far
}

// spareOf has a connection wait for its client.
func (s *scripted) spareOf(near net.Conn, silent time.Duration, nobody bool) {
	p := s.lanes
	p.spares.mu.Lock()
	defer p.spares.mu.Unlock()
	p.addLocked(spare{Conn: near, server: upstream.Server{Addr: p.Upstream.Addr}, nobody: nobody,
		heardAt: monotonic.Now() - int64(silent)})
}

// likeTLS is a connection that an event loop cannot write, as with TLS.
type likeTLS struct{ *net.TCPConn }

// An event loop that gives a client a spare which it cannot write leaves the client's name and its
// request to the goroutine, which sends both in order.
func TestGoroutineSendsByASpareWithTLS(t *testing.T) {
	s := newScripted(t, 1)
	c := s.client(t)
	c.c.pending.Name = "me"
	near, home := tcpPair(t)
	s.spareOf(likeTLS{near}, 0, false)
	it := &eventloop.Iteration{}
	request := Request{Raw: wire.Append(nil, "MULTI")}
	if c.relayInLoop(request, Home, it) {
		t.Error("the request is relayed in the loop")
	}
	if c.Flush(it) {
		t.Error("everything has been sent in the loop")
	}
	if err := c.Route(context.Background(), Home, nil); err != nil {
		t.Fatal(err)
	}
	c.Relay(request, nil)
	c.Flush(nil)
	reads(t, home, "CLIENT", "SETNAME", "me")
	reads(t, home, "MULTI")
	io.WriteString(home, "+OK\r\n+OK\r\n")
	if got := c.line(t); got != "+OK" {
		t.Error(got)
	}
	c.End(AtOnce)
	c.Wait()
}

// A login is not sent behind what sets up the home that a client gets in an event loop: Redis as of 7.2
// would not answer that it refuses it.
func TestLoginWaitsForWhatSetsUpTheHome(t *testing.T) {
	for _, effect := range []commands.Effect{commands.Auth, commands.Hello} {
		s := newScripted(t, 1)
		c := s.client(t)
		c.c.pending.Name = "me"
		home := s.addSpare(t, 0, false)
		login := Request{Raw: wire.Append(nil, "LOGIN"), Expect: Expect{Effect: effect}}
		if it := (&eventloop.Iteration{}); c.relayInLoop(login, Home, it) {
			t.Errorf("effect %v is relayed behind the name", effect)
		}
		set := c.Barrier()
		c.Flush(nil)
		reads(t, home, "CLIENT", "SETNAME", "me")
		io.WriteString(home, "+OK\r\n")
		set.wait()
		if it := (&eventloop.Iteration{}); !c.relayInLoop(login, Home, it) || !c.Flush(it) {
			t.Errorf("effect %v waits for nothing", effect)
		}
		reads(t, home, "LOGIN")
		c.End(AtOnce)
		c.Wait()
	}
}

// says has the door know what Redis says of new clients, as of some time ago.
func (d *door) says(v verdict, ago time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.begun, d.done, d.last = time.Now().Add(-ago), make(chan struct{}), v
	d.of = d.begun
	d.asked++
	if d.lastN = d.asked; v == admitted {
		d.goodN = d.asked
	}
	close(d.done)
}

// inLoop asks in an iteration of an event loop, as far as that needs no waiting.
func (c *scriptedClient) inLoop(it *eventloop.Iteration, way Way, words ...string) bool {
	return c.relayInLoop(Request{Raw: wire.Append(nil, words...)}, way, it) && c.Flush(it)
}

// reads fails unless these words come next.
func reads(t *testing.T, from net.Conn, words ...string) {
	t.Helper()
	want := wire.Append(nil, words...)
	got := make([]byte, len(want))
	from.SetReadDeadline(testwait.Deadline())
	if _, err := io.ReadFull(from, got); err != nil || string(got) != string(want) {
		t.Errorf("Redis is asked %q, %v, want %q", got, err, want)
	}
}

// A client's first request that needs a home is sent in the iteration in which it has come: others
// that come later do not overtake it, while Redis is asked nothing and no goroutine begins to run.
func TestRequestGoesByASpareInItsTurn(t *testing.T) {
	for _, name := range []string{"", "me"} {
		testRequestGoesByASpare(t, name)
	}
}

func testRequestGoesByASpare(t *testing.T, name string) {
	s := newScripted(t, 1)
	s.lanes.door.says(admitted, time.Hour) // it would have to be asked again
	blocks, other := s.client(t), s.client(t)
	blocks.c.pending.Name = name // as its last home was called
	other.openLane(t)
	lane := testwait.For(t, "the lane is open", s.conns)
	home := s.addSpare(t, 0, false)
	it := &eventloop.Iteration{}
	if !other.inLoop(it, Shared, "before") || !blocks.inLoop(it, Home, "blocks") ||
		!other.inLoop(it, Shared, "behind") {
		t.Fatal("a request has to wait")
	}
	reads(t, lane, "before")
	if name != "" {
		reads(t, home, "CLIENT", "SETNAME", name)
		io.WriteString(home, "-NOPERM no names\r\n")
	}
	reads(t, home, "blocks")
	if n, _ := socket.New(lane).Peek(); n > 0 {
		t.Error("what has come later is sent before the end of the iteration")
	}
	it.Flush()
	reads(t, lane, "behind")
	io.WriteString(home, "+done\r\n")
	if got := blocks.line(t); got != "+done" {
		t.Error(got)
	}
	for _, c := range []*scriptedClient{blocks, other} {
		c.End(AtOnce)
		c.Wait()
	}
}

// A client whose name is refused is told what becomes of its request when Redis goes away: that error
// was no refusal of the connection.
func TestHomeWhoseNameIsRefused(t *testing.T) {
	s := newScripted(t, 1)
	s.lanes.Upstream.Addr = "127.0.0.1:1" // nobody answers there
	c := s.client(t)
	c.c.pending.Name = "me"
	home := s.addSpare(t, 0, false)
	if !c.inLoop(&eventloop.Iteration{}, Home, "blocks") {
		t.Fatal("the request has to wait")
	}
	reads(t, home, "CLIENT", "SETNAME", "me")
	reads(t, home, "blocks")
	io.WriteString(home, "-NOPERM no names\r\n")
	testwait.Until(t, "that has been read", func() bool {
		c.c.mu.Lock()
		defer c.c.mu.Unlock()
		return c.c.pending.len() == 1
	})
	home.Close()
	if got := c.line(t); got != "-SENT" {
		t.Error(got)
	}
	c.End(AtOnce)
	c.Wait()
}

// A client that Redis has not let in gets no connection that another was let in on before, unless
// Redis says so now; and one that needs none of its own takes none.
func TestSparesAreForThoseLetIn(t *testing.T) {
	for _, test := range []struct {
		name     string
		letIn    bool
		says     verdict
		nobody   bool // who the spare can be for
		ok, left bool
	}{
		{"let in", true, refused, false, true, false},
		{"let in, and the spare demands a login", true, refused, true, false, true},
		{"a new one", false, admitted, false, true, false},
		{"a new one that Redis refuses", false, refused, false, false, false},
		{"a new one that must log in", false, refused, true, true, false},
		{"a new one, while Redis says nothing", false, unknown, false, false, true},
	} {
		s := newScripted(t, 1)
		s.lanes.door.says(test.says, 0)
		s.addSpare(t, 0, test.nobody)
		found, ok := s.lanes.popSpare(test.letIn)
		if open, _ := s.lanes.spares.count(); ok != test.ok || open > 0 != test.left {
			t.Errorf("%s: it gets one: %v, %d are left", test.name, ok, open)
		}
		if ok {
			found.Close()
		}
	}
	s := newScripted(t, 1)
	s.addSpare(t, 0, false)
	c := s.client(t)
	for _, way := range []Way{Shared, Home} {
		if way == Home {
			c.c.pending.Admitted = false
		}
		if err := c.Route(context.Background(), way, &eventloop.Iteration{}); err != ErrWaits {
			t.Errorf("way %v: %v", way, err)
		}
	}
	if open, _ := s.lanes.spares.count(); open != 1 {
		t.Error("the spare is used")
	}
}

// Where Redis closes idle connections, spares are closed after a part of that time, and do not count
// as homes for clients to come; a client gets none that Redis is about to close.
func TestSparesAreNotIdle(t *testing.T) {
	s := newScripted(t, 1)
	p := s.lanes
	old := s.addSpare(t, 25*time.Second, false)
	young := s.addSpare(t, 5*time.Second, false)
	middle := s.addSpare(t, 15*time.Second, false)
	p.Suspend(true, time.Minute) // a third of that
	old.SetReadDeadline(testwait.Deadline())
	if _, err := old.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the oldest is still open: %v", err)
	}
	if open, _ := p.spares.count(); open != 2 {
		t.Errorf("%d wait for clients", open)
	}
	p.Suspend(true, 3*time.Second)
	if open, _ := p.spares.count(); open != 0 {
		t.Errorf("%d wait for clients", open)
	}
	for _, far := range []net.Conn{young, middle} {
		far.SetReadDeadline(testwait.Deadline())
		if _, err := far.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("one is still open: %v", err)
		}
	}
}

// A home that was silent for long before its client left is not as new: Redis would close it soon.
// RESET ends the silence.
func TestSilentHomeIsResetForTheNext(t *testing.T) {
	for _, silent := range []time.Duration{time.Second, 50 * time.Second} {
		s := newScripted(t, 1)
		s.lanes.Spares = 1
		c := s.client(t)
		far := s.addSpare(t, 0, false)
		s.lanes.Suspend(true, time.Minute)
		if err := c.Route(context.Background(), Home, nil); err != nil {
			t.Fatal(err)
		}
		c.c.mu.Lock()
		c.c.home.heardAt -= int64(silent)
		ended := c.c.home.ended
		c.c.mu.Unlock()
		c.End(ClientGone)
		if silent > 20*time.Second {
			reads(t, far, "RESET")
			io.WriteString(far, "+RESET\r\n")
			reads(t, far, "PING")
			io.WriteString(far, "+PONG\r\n")
			reads(t, far, "CLIENT", "INFO")
			io.WriteString(far, "-ERR unknown\r\n-ERR unknown\r\n")
		}
		testwait.For(t, "the home has ended", ended)
		testwait.Until(t, "the next client can have it", func() bool {
			s.lanes.spares.mu.Lock()
			defer s.lanes.spares.mu.Unlock()
			return slices.ContainsFunc(s.lanes.spares.list, func(given spare) bool {
				return given.used && monotonic.Since(given.heardAt) < 20*time.Second
			})
		})
		c.Wait()
	}
}

// Homes for clients to come are opened at the same time: if Redis is far away, or the machine busy,
// those that a crowd has taken are replaced before the next comes.
func TestSparesAreOpenedTogether(t *testing.T) {
	s := newScripted(t, 0)
	s.lanes.Spares = 4
	for range 3 {
		s.lanes.wantSpares()
	}
	var opened []net.Conn
	for range 4 {
		opened = append(opened, testwait.For(t, "another is being opened", s.conns))
	}
	for _, far := range opened {
		reads(t, far, "CLIENT", "INFO")
		io.WriteString(far, "-ERR unknown\r\n-ERR unknown\r\n")
	}
	testwait.Until(t, "all wait for clients", func() bool {
		open, _ := s.lanes.spares.count()
		return open == 4
	})
	s.lanes.wantSpares()
	if n := len(s.conns); n > 0 {
		t.Errorf("%d more are opened", n)
	}
}
