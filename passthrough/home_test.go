package passthrough

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"weak"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/socket"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
)

// What comes by the home while replies come by the lane reaches the client whole, between two of
// them.
func TestPushesByTheHomeNextToALane(t *testing.T) {
	const push, reply = ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n", "$5\r\nvalue\r\n"
	for cut := range len(push) {
		u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 3})
		u.c.route, u.c.within = byLane, true // the client has been given a part of a reply
		u.answer(t, push[:cut])
		u.answer(t, push[cut:])
		if got := u.took(); got != "" {
			t.Fatalf("cut at %d: within a reply the client is given %q", cut, got)
		}
		u.c.mu.Lock()
		u.c.within = false
		u.c.sendLocked()
		u.c.mu.Unlock()
		u.c.out.wait()
		if got := u.took(); got != push {
			t.Fatalf("cut at %d: behind the reply the client is given %q", cut, got)
		}
		// A push that has begun when the client's requests go by the home again is its own before
		// their replies.
		u.answer(t, push[:cut])
		u.lanes.leaveLane(nil)
		u.homes.useHome()
		u.Relay(Request{}, nil)
		u.answer(t, push[cut:]+reply)
		u.c.out.wait()
		if got := u.took(); got != push+reply {
			t.Fatalf("cut at %d: by the home the client is given %q", cut, got)
		}
	}
}

// A push that is too large to be kept until it has come waits for the lane's replies, and then comes
// in pieces: the home reads no more of it before.
func TestLargePushNextToALane(t *testing.T) {
	const whole = 3 * maxPushes
	push := fmt.Sprintf(">1\r\n$%d\r\n%s\r\n", whole, strings.Repeat("x", whole))
	u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 3})
	u.c.route, u.c.inFlight, u.c.within = byLane, 1, true
	u.answer(t, push[:2*maxPushes])
	if !u.c.home.MustWait() {
		t.Error("all of it is kept")
	}
	read := make(chan struct{})
	go func() { u.c.home.Wait(); close(read) }() // ends when the lane has replied
	testwait.Blocked(t, "passthrough.(*home).Wait")
	select {
	case <-read:
		t.Error("the home is read while the lane replies")
	default:
	}
	u.c.mu.Lock()
	u.c.inFlight, u.c.within = 0, false
	u.c.room.Broadcast()
	u.c.mu.Unlock()
	<-read
	if u.goes(byLane) {
		t.Error("a lane can reply within the push")
	}
	u.answer(t, push[2*maxPushes:])
	if got := u.took(); got != push {
		t.Errorf("the client is given %.100q", got)
	}
	if !u.goes(byLane) {
		t.Error("behind the push no lane can reply")
	}
}

// goes reports whether the route can change.
func (u *unplugged) goes(to route) bool {
	u.c.mu.Lock()
	defer u.c.mu.Unlock()
	return u.c.setRoute(to)
}

// The beginning of a push that came by a home which ended within it is not given to the client.
func TestAPushThatEndsWithItsHome(t *testing.T) {
	u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 3})
	u.c.route = byLane
	u.answer(t, ">2\r\n$10\r\ninval")
	u.c.home = &home{c: &u.c, connReader: connReader{rw: nowhere{}}} // the next one
	u.lanes.leaveLane(nil)
	u.homes.useHome()
	u.Relay(Request{}, nil)
	u.answer(t, "$5\r\nvalue\r\n")
	if got := u.took(); got != "$5\r\nvalue\r\n" {
		t.Errorf("the client is given %q", got)
	}
}

// Nothing goes by a lane while the client has a part of a push, even if that has come since Route
// looked: the lane's replies would come within it.
func TestNoLaneWithinAPush(t *testing.T) {
	u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 3})
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	kind := poolKey{Identity: u.c.pending.Identity}
	u.c.pool.LanesPerKey = 1
	l := newLane(kind, near, &Pool{})
	u.lanes.lane = l
	u.answer(t, ">2\r\n$10\r\ninval")
	if u.Route(t.Context(), Shared, nil) != nil || u.c.route != byHome {
		t.Error("within a push a lane is used")
	}
	u.lanes.lane = l
	u.answer(t, "idate\r\n_\r\n")
	if u.Route(t.Context(), Shared, nil) != nil || u.c.route != byLane {
		t.Error("behind the push no lane is used")
	}
}

// A request that was queued when the home was lost is answered as lost, and is not sent by the next
// home, where its reply would be taken for another's.
func TestQueuedRequestsOfALostHome(t *testing.T) {
	s := newScripted(t, 0)
	c := s.client(t)
	route := func() {
		t.Helper()
		if err := c.Route(context.Background(), Home, nil); err != nil {
			t.Fatal(err)
		}
	}
	route()
	before, queued := c.Do(nil, []byte("SENT\r\n"))[0], (*Answer)(nil)
	c.Flush(nil)
	first := <-s.conns
	if got := lineOf(t, first); got != "SENT" {
		t.Fatalf("the upstream is sent %q", got)
	}
	route()
	queued = c.Do(nil, []byte("QUEUED\r\n"))[0]
	first.Close()
	for i, a := range []*Answer{before, queued} {
		if _, err := a.Value(); err == nil {
			t.Errorf("request %d of a lost connection has a reply", i)
		}
	}
	later := c.Do(nil, []byte("LATER\r\n"))[0] // before Route is asked again
	if _, err := later.Value(); err == nil {
		t.Error("a request behind them has a reply")
	}
	route()
	next := c.Do(nil, []byte("NEXT\r\n"))[0]
	c.Flush(nil)
	second, got := <-s.conns, ""
	// the proxy looks whether the upstream serves
	for got = lineOf(t, second); got == "*2"; got = lineOf(t, second) {
		second.Close()
		second = <-s.conns
	}
	if got != "NEXT" {
		t.Fatalf("the next connection is sent %q first", got)
	}
	io.WriteString(second, ":1\r\n")
	if v, err := next.Value(); err != nil || v.Int != 1 {
		t.Errorf("%v, %v", v, err)
	}
	c.End(AtOnce)
	c.Wait()
}

// A transaction that could not begin on a home that was lost ends the session: what comes behind
// MULTI must not run without it.
func TestMultiOnALostHome(t *testing.T) {
	s := newScripted(t, 0)
	c := s.client(t)
	if err := c.Route(context.Background(), Home, nil); err != nil {
		t.Fatal(err)
	}
	before := c.Do(nil, []byte("SENT\r\n"))[0]
	c.Awaiting(true) // and the session is about to use the home further
	(<-s.conns).Close()
	if _, err := before.Value(); err == nil {
		t.Error("a request of a lost connection has a reply")
	}
	c.Relay(Request{Raw: []byte("MULTI\r\n"), Expect: Expect{Effect: commands.Multi}}, nil)
	c.Relay(Request{Raw: []byte("SET\r\n")}, nil)
	if !c.Lost() {
		t.Error("the session goes on")
	}
	if err := c.Route(context.Background(), Home, nil); err == nil {
		t.Error("what comes behind MULTI finds a connection")
	}
	c.End(AtOnce)
	c.Wait()
}

// An event loop sends what a client has pipelined for its home in one piece: Redis answers some
// commands differently if it reads them alone.
func TestPipelineForTheHomeGoesInOnePiece(t *testing.T) {
	s := newScripted(t, 0)
	c := s.client(t)
	if err := c.Route(context.Background(), Home, nil); err != nil {
		t.Fatal(err)
	}
	c.Flush(nil)
	conn := <-s.conns
	it := &eventloop.Iteration{}
	for _, raw := range []string{"MULTI\r\n", "SET\r\n", "EXEC\r\n"} {
		if !c.relayInLoop(Request{Raw: []byte(raw)}, Home, it) {
			t.Fatalf("%q would have to wait", raw)
		}
	}
	buf := make([]byte, 100)
	if n, err := socket.New(conn).Peek(); n > 0 {
		t.Errorf("%d bytes were sent by themselves, %v", n, err)
	}
	if !c.Flush(it) {
		t.Fatal("the upstream has no room")
	}
	conn.SetReadDeadline(testwait.Deadline())
	if n, err := conn.Read(buf); string(buf[:n]) != "MULTI\r\nSET\r\nEXEC\r\n" {
		t.Errorf("%q, %v", buf[:n], err)
	}
	c.End(AtOnce)
	c.Wait()
}

// What others than the session ask by its home is not sent between the steps of a FENCE, where it
// would become a part of the transaction.
func TestNothingAsideWhilePinned(t *testing.T) {
	s := newScripted(t, 0)
	c := s.client(t)
	if err := c.Route(context.Background(), Home, nil); err != nil {
		t.Fatal(err)
	}
	c.Pin(Pinned)
	c.KeepAlive()
	if known, busy := c.LearnID(false); known != nil || !busy || c.Status().ID != 0 {
		t.Errorf("the number of the home: %d, %v, %v", c.Status().ID, known, busy)
	}
	c.Do(nil, []byte("EXEC\r\n"))
	c.Flush(nil)
	if got := lineOf(t, <-s.conns); got != "EXEC" {
		t.Errorf("the next that comes is %q", got)
	}
	c.End(AtOnce)
	c.Wait()
}

func lineOf(t *testing.T, conn net.Conn) string {
	t.Helper()
	conn.SetReadDeadline(testwait.Deadline())
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// What could not be sent is refused until Flush, even if a lane opens meanwhile: some requests need
// two Routes, and would be sent without their first part.
func TestRouteFailsUntilFlush(t *testing.T) {
	s := newScripted(t, 1)
	c := s.client(t)
	reachable := make(chan struct{})
	s.lanes.Upstream.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		<-reachable
		return net.Dial(network, addr)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	failed := c.Route(ended, Shared, nil)
	if failed == nil {
		t.Fatal("a lane was opened to what cannot be reached")
	}
	close(reachable)
	c.openLane(t)
	for _, way := range []Way{Shared, Home} {
		if err := c.Route(t.Context(), way, nil); err != failed {
			t.Errorf("the next Route: %v, want %v", err, failed)
		}
	}
	c.Flush(nil)
	c.ask(t, "PING")
}

// A home that can't be opened keeps nothing from the lanes.
func TestLaneServesWithoutHome(t *testing.T) {
	s := newScripted(t, 1)
	c := s.client(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if c.Route(ended, Home, nil) == nil {
		t.Fatal("a home was opened in no time")
	}
	c.ask(t, "PING")
}

// What was read is not kept once the client has it: an idle session would keep a whole buffer.
func TestNothingReadIsKept(t *testing.T) {
	u := newUnplugged(upstream.Identity{LoggedIn: true, Proto: 2})
	for range 3 {
		u.Relay(Request{Expect: Expect{Effect: commands.UnknownState}}, nil)
		u.Reply([]byte("+own\r\n"), InTurn) // cuts the replies into pieces
	}
	read := []byte(strings.Repeat("$20000\r\n"+strings.Repeat("x", 20000)+"\r\n", 3))
	kept := weak.Make(&read[0])
	if err := u.feed(read); err != nil || u.outstanding() {
		t.Fatal("not everything is answered:", err)
	}
	read = nil
	runtime.GC()
	if kept.Value() != nil {
		t.Error("what was read is kept")
	}
	runtime.KeepAlive(u)
}
