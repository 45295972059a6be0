package passthrough

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/monotonic"
	"lockproxy/internal/resp"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/internal/upstream"
)

// Every client is given its own replies in the order of its requests, wherever the upstream's bytes
// are cut, whatever kinds of replies they are, and though pushes for no client come between them.
func TestLaneGivesToEachItsOwn(t *testing.T) {
	s := newScripted(t, 1)
	var clients []*scriptedClient
	for range 4 {
		clients = append(clients, s.client(t))
	}
	stop := s.serve(serveWithPushes)
	s.lanes.BatchScript = batchSHA
	asked, refused := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		due := make([]string, len(clients))
		answers := map[string]*Answer{}
		for range rapid.IntRange(1, 60).Draw(rt, "requests") {
			i := rapid.IntRange(0, len(clients)-1).Draw(rt, "client")
			kind := rapid.SampledFrom([]string{"s", "b", "a", "n", "e"}).Draw(rt, "kind")
			asked++
			name := fmt.Sprintf("%s%d-%d", kind, i, asked)
			if rapid.IntRange(0, 3).Draw(rt, "call") > 0 {
				answers[name] = clients[i].call(t, name, rapid.Bool().Draw(rt, "in a loop"))
				continue
			}
			due[i] += string(scriptedReply(name))
			if rapid.Bool().Draw(rt, "in a loop") && clients[i].tryAsk(name) {
				continue
			}
			clients[i].ask(t, name)
			if rapid.Bool().Draw(rt, "flush") {
				clients[i].Flush(nil)
			}
		}
		for _, c := range clients {
			c.Flush(nil)
			if c.lanes.lane != nil {
				c.lanes.lane.Flush() // what askInLoop has gathered
			}
		}
		for i, c := range clients {
			for got := ""; got != due[i]; {
				b, err := c.in.ReadByte()
				if got += string(b); err != nil || !strings.HasPrefix(due[i], got) {
					rt.Fatalf("client %d got %q, %v; want %q", i, got, err, due[i])
				}
			}
		}
		refused += answeredAsAsked(rt, answers)
	})
	if refused == 0 {
		t.Error("no batch of calls was refused")
	}
	for _, c := range clients {
		c.End(AtOnce)
		c.Wait()
	}
	stop()
}

// A login that failed half way may have taken effect, or in part: no other client is given its
// connection.
func TestFailedHelloIsNotShared(t *testing.T) {
	name := "name"
	for _, c := range []struct {
		what   string
		expect Expect
		reply  resp.Head
		shared bool
	}{
		{"a login that was refused", Expect{Effect: commands.Hello,
			Change: &upstream.Identity{Proto: 3, User: "u", LoggedIn: true}},
			resp.Head{Type: '-', Line: []byte("ERR Syntax error in HELLO option 'x'")}, false},
		{"a name that was refused", Expect{Effect: commands.Hello,
			Change: &upstream.Identity{Proto: 3}, Text: &name},
			resp.Head{Type: '-', Line: []byte("ERR Syntax error")}, false},
		{"a version that isn't spoken", Expect{Effect: commands.Hello,
			Change: &upstream.Identity{Proto: 4}},
			resp.Head{Type: '-', Line: []byte("NOPROTO unsupported protocol version")}, true},
		{"a server without HELLO", Expect{Effect: commands.Hello,
			Change: &upstream.Identity{Proto: 3, User: "u", LoggedIn: true}},
			resp.Head{Type: '-', Line: []byte("ERR unknown command `HELLO`")}, true},
		{"one too large to read", Expect{Effect: commands.Hello},
			resp.Head{Type: '%', Line: []byte("7")}, false},
		{"AUTH too large to read", Expect{Effect: commands.Auth},
			resp.Head{Type: '+', Line: []byte("OK")}, false},
		{"a password that was refused", Expect{Effect: commands.Auth,
			Change: &upstream.Identity{User: "u", LoggedIn: true}},
			resp.Head{Type: '-', Line: []byte("WRONGPASS")}, true},
	} {
		s := newState(upstream.Identity{Proto: 2})
		s.Admitted = true
		s.apply(c.expect, c.reply)
		if s.Shareable() != c.shared {
			t.Errorf("%s: shareable %v, want %v", c.what, s.Shareable(), c.shared)
		}
		s = newState(upstream.Identity{Proto: 2})
		s.Admitted = true
		s.set(InMulti, true)
		s.apply(c.expect, resp.Head{Type: '+', Line: []byte("QUEUED")})
		if c.reply.Type == '-' && c.what != "a server without HELLO" {
			s.apply(Expect{Effect: commands.Exec},
				resp.Head{Type: '*', Line: []byte("1"), Errors: []int{0}})
			if s.Shareable() && !c.shared {
				t.Errorf("%s, in MULTI, can be shared", c.what)
			}
		}
	}
}

// An answer to the proxy's own request that is too large to be kept costs nobody else the lane.
func TestOwnReplyTooLargeForALane(t *testing.T) {
	s := newScripted(t, 1)
	clients, lane := s.threeOnALane(t)
	io.WriteString(lane, strings.Repeat("+PONG\r\n", len(clients)))
	for _, c := range clients {
		if got := c.line(t); got != "+PONG" {
			t.Fatal(got)
		}
	}
	asks, other := clients[0], clients[1]
	if err := asks.Route(context.Background(), Shared, nil); err != nil || asks.c.route != byLane {
		t.Fatal(err, asks.c.route)
	}
	answer := asks.Do(nil, wire.Append(nil, "GET", "large"))[0]
	asks.Flush(nil)
	other.ask(t, "ECHO", "other")
	other.Flush(nil)
	large := strings.Repeat("x", maxCall+1)
	fmt.Fprintf(lane, "$%d\r\n%s\r\n+other\r\n", len(large), large)
	if got := other.line(t); got != "+other" {
		t.Errorf("the other client got %q", got)
	}
	if _, err := answer.Raw(); err != errTooLarge {
		t.Error(err)
	}
}

// What a lane has no room for at the end of an iteration follows as soon as there is room, before
// what is asked later, in an event loop or not. Only clients that ask too much wait.
func TestIterationsWithoutRoom(t *testing.T) {
	s := newScripted(t, 1)
	clients, lane := s.threeOnALane(t)
	read := make(chan struct{})
	answer := func(lane net.Conn) { // ends when the lane does
		eachRequest(lane, func(words []string) bool {
			if words[0] == "PING" {
				lane.Write([]byte("+PONG\r\n"))
				return true
			}
			<-read
			fmt.Fprintf(lane, "+%s\r\n", words[1])
			return true
		})
	}
	stop := s.serve(answer)
	s.conns <- lane
	// full before a slow machine's lane seems silent
	for _, side := range []net.Conn{clients[0].lanes.lane.Conn, lane} {
		side.(interface{ SetReadBuffer(bytes int) error }).SetReadBuffer(64 << 10)
		side.(interface{ SetWriteBuffer(bytes int) error }).SetWriteBuffer(64 << 10)
	}
	// More of them than the kernel can take meanwhile.
	left, inLoop, large := 0, 0, strings.Repeat("x", 60<<10)
	for _, c := range clients {
		if got := c.line(t); got != "+PONG" {
			t.Fatal(got)
		}
	}
	for j := range 400 {
		i := j % len(clients)
		c, l := clients[i], clients[i].lanes.lane
		if !c.tryAsk("SET", fmt.Sprintf("%d-%d", i, j), large) {
			break
		}
		inLoop++
		l.mu.Lock()
		if l.out.writing {
			left++
		}
		l.mu.Unlock()
	}
	if inLoop == 400 || left == 0 {
		t.Fatalf("the lane has taken %d requests, and had no room after %d", inLoop, left)
	}
	var asking sync.WaitGroup
	for i, c := range clients {
		asking.Go(func() { // waits for room
			for j := range 20 {
				c.ask(t, "SET", fmt.Sprintf("%d-%d", i, 1000+j), large)
				c.Flush(nil)
			}
		})
	}
	testwait.Blocked(t, "passthrough.(*scriptedClient).ask")
	close(read)
	for i, c := range clients {
		for j := i; j < inLoop; j += len(clients) {
			if got, want := c.line(t), fmt.Sprintf("+%d-%d", i, j); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
		for j := range 20 {
			if got, want := c.line(t), fmt.Sprintf("+%d-%d", i, 1000+j); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
	}
	asking.Wait()
	for _, c := range clients {
		c.End(AtOnce)
		c.Wait()
	}
	stop()
}

// A lane that froze after its last session had left is closed when the next one comes.
func TestFrozenLaneWithoutSessionsIsClosed(t *testing.T) {
	s := newScripted(t, 1)
	clients, lane := s.threeOnALane(t)
	io.WriteString(lane, "+PONG\r\n+PONG\r\n+PONG\r\n")
	frozen := clients[0].lanes.lane
	for _, c := range clients {
		c.line(t)
		c.End(AtOnce)
		c.Wait()
	}
	// The lane says so itself behind its last reply.
	testwait.Until(t, "nothing is owed", func() bool { return frozen.silence.since.Load() == 0 })
	frozen.silence.since.Store(monotonic.Now() - int64(time.Minute))
	next := s.client(t)
	defer next.Wait()
	defer next.End(AtOnce)
	next.Route(context.Background(), Shared, nil)
	lane.SetReadDeadline(testwait.Deadline())
	if _, err := io.Copy(io.Discard, lane); err != nil {
		t.Errorf("the lane is not closed: %v", err)
	}
}

// An event loop asks two things at once by a lane. If the lane has room for one alone, it leaves
// both to the goroutine, and the answer to the first harms nobody.
func TestSeveralByALaneInALoop(t *testing.T) {
	s := newScripted(t, 1)
	c := s.client(t)
	c.ask(t, "s")
	c.Flush(nil)
	lane := testwait.For(t, "the lane", s.conns)
	two := [][]byte{wire.Append(nil, "b1"), wire.Append(nil, "b2")}
	doInLoop := func() []*Answer {
		it := &eventloop.Iteration{}
		defer it.Flush()
		return c.Do(it, two...)
	}
	both := doInLoop()
	if both == nil {
		t.Fatal("they are left to the goroutine")
	}
	c.c.mu.Lock()
	others := c.c.inFlight
	c.c.inFlight = maxHomeless - 1
	c.c.mu.Unlock()
	if doInLoop() != nil {
		t.Error("a lane without room took both")
	}
	c.c.mu.Lock()
	c.c.inFlight = others + 1
	c.c.mu.Unlock()
	again := c.Do(nil, two...)
	c.ask(t, "b9")
	c.Flush(nil)
	asked := ""
	eachRequest(lane, func(words []string) bool {
		asked += " " + words[0]
		lane.Write(scriptedReply(words[0]))
		return words[0] != "b9"
	})
	if asked != " s b1 b2 b1 b1 b2 b9" {
		t.Errorf("it asked%s", asked)
	}
	for i, a := range append(both, again...) {
		want := scriptedReply([]string{"b1", "b2"}[i%2])
		if raw, err := a.Raw(); err != nil || string(raw) != string(want) {
			t.Errorf("answer %d is %q, %v", i, raw, err)
		}
	}
	if got := c.line(t) + c.line(t) + c.line(t); got != "+s$2b9" {
		t.Errorf("the client got %q", got)
	}
	c.End(AtOnce)
	c.Wait()
	s.lanes.Close()
}
