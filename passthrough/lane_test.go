package passthrough

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"lockproxy/internal/commands"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/internal/socket"
	"lockproxy/internal/upstream"
)

const probing = "*1\r\n$4\r\nPING\r\n"

// scripted is an upstream that a test plays.
type scripted struct {
	lanes *Pool
	conns chan net.Conn // as they are opened
}

func newScripted(t testing.TB, lanes int) *scripted {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	redis, err := upstream.Parse("redis://" + ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := &scripted{lanes: NewPool(Config{Upstream: redis, LanesPerKey: lanes,
		DialTimeout: time.Second}), conns: make(chan net.Conn, 1000)}
	loops, err := eventloop.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	s.lanes.ReadIn(loops)
	accepting := make(chan struct{})
	go func() { // ends when ln does
		defer close(accepting)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			// a lane's first request asks whether it lets anybody in
			if probed := make([]byte, len(probing)); lanes > 0 {
				conn.SetReadDeadline(time.Now().Add(10 * time.Second))
				io.ReadFull(conn, probed)
				io.WriteString(conn, "+PONG\r\n")
				conn.SetReadDeadline(time.Time{})
			}
			s.conns <- conn
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		<-accepting
		close(s.conns)
		for conn := range s.conns {
			conn.Close()
		}
		s.lanes.Close()
		loops.Stop()
	})
	return s
}

// scriptedClient is a session's Pipe and what its client reads.
type scriptedClient struct {
	*Pipe
	far *net.TCPConn
	in  *bufio.Reader
}

// client returns one that the upstream is taken to have answered already.
func (s *scripted) client(t testing.TB) *scriptedClient {
	t.Helper()
	near, far := tcpPair(t)
	p := NewPipe(s.lanes, near, socket.New(near), func(err error) []byte {
		var lost *upstream.Error
		if errors.As(err, &lost) && lost.Sent {
			return []byte("-SENT\r\n")
		}
		return []byte("-UNSENT\r\n")
	})
	p.pending.Admitted = true
	p.homeUse = unneeded // only what needs a home has one
	far.SetReadDeadline(time.Now().Add(20 * time.Second))
	return &scriptedClient{p, far, bufio.NewReader(far)}
}

// openLane returns when there is a lane for the client's requests.
func (c *scriptedClient) openLane(t testing.TB) {
	t.Helper()
	ls, kind := c.pool, poolKey{Identity: c.pending.Identity}
	for over := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		ls.mu.Lock()
		set := ls.groups[kind]
		if set == nil {
			set = &laneGroup{}
			ls.groups[kind] = set
		}
		open := set.leastUsed() != nil
		if !open && set.opening == nil {
			ls.startOpenLocked(kind, set)
		}
		ls.mu.Unlock()
		if open {
			return
		}
		if time.Now().After(over) {
			t.Fatal("no lane was opened")
		}
	}
}

// threeOnALane returns three clients that have sent a PING each by one lane, and the upstream's end
// of that.
func (s *scripted) threeOnALane(t testing.TB) (clients []*scriptedClient, lane net.Conn) {
	t.Helper()
	for range 3 {
		c := s.client(t)
		c.ask(t, "PING")
		c.Flush()
		clients = append(clients, c)
	}
	return clients, <-s.conns
}

func (c *scriptedClient) ask(t testing.TB, words ...string) {
	t.Helper()
	if c.route != byLane || !c.lane.serves() {
		c.openLane(t)
	}
	if err := c.Connect(context.Background(), Shared); err != nil {
		t.Fatal(err)
	}
	if c.route != byLane {
		t.Fatal("the client is at home")
	}
	c.Relay(Request{Raw: resp.AppendCommand(nil, words...)})
}

// tryAsk does what ask and Flush do as an event loop does it, if that can be done. On a lane that
// others use, its iteration may end with theirs.
func (c *scriptedClient) tryAsk(words ...string) bool {
	if !c.TryRelay(Request{Raw: resp.AppendCommand(nil, words...), Way: Shared},
		&eventloop.Iteration{}) {
		return false
	}
	if rand.IntN(2) == 0 {
		runtime.Gosched() // others add to it
	}
	c.lane.Flush()
	return true
}

func (c *scriptedClient) line(t testing.TB) string {
	t.Helper()
	line, err := c.in.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\r\n")
}

// eachRequest calls f with the words of every request that comes, until the connection closes or f
// says so.
func eachRequest(conn net.Conn, f func(words []string) (more bool)) {
	framer := resp.NewFramer(resp.Limits{})
	var buf []byte
	piece := make([]byte, 64<<10)
	for {
		n, err := conn.Read(piece)
		buf = append(buf, piece[:n]...)
		for len(buf) > 0 {
			req, whole, ferr := framer.Next(buf)
			if ferr != nil || !whole {
				break
			}
			words := make([]string, len(req.Args))
			for i, arg := range req.Args {
				words[i] = string(arg)
			}
			buf = buf[len(req.Raw):]
			if !f(words) {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// Every client is given its own replies in the order of its requests, wherever the upstream's bytes
// are cut, whatever kinds of replies they are, and though pushes that belong to nobody stand
// between them.
func TestLaneGivesToEachItsOwn(t *testing.T) {
	s := newScripted(t, 1)
	var clients []*scriptedClient
	for range 4 {
		clients = append(clients, s.client(t))
	}
	var serving sync.WaitGroup
	over := make(chan struct{})
	// ends with over; there may be a second lane if the machine is so slow that the first seems
	// silent
	serving.Go(func() {
		for {
			select {
			case lane := <-s.conns:
				serving.Go(func() { serveWithPushes(lane) }) // ends when the lane does
			case <-over:
				return
			}
		}
	})
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
				clients[i].Flush()
			}
		}
		for _, c := range clients {
			c.Flush()
			if c.lane != nil {
				c.lane.Flush() // what TryAsk has gathered
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
		for name, a := range answers {
			raw, err := a.Raw()
			switch {
			case err == nil && string(raw) == string(scriptedReply(name)) && !a.refused:
			case err == nil && string(raw) == batchRefusal && a.Refused():
				refused++
				a.with.pausedUntil.Store(0)
			default:
				rt.Fatalf("call %s was answered %q, %v, refused: %v", name, raw, err, a.refused)
			}
		}
	})
	if refused == 0 {
		t.Error("no batch of calls was refused")
	}
	for _, c := range clients {
		c.End(AtOnce)
		c.Wait()
	}
	close(over)
	s.lanes.Close()
	serving.Wait()
}

// call asks for a script, as an event loop does it or not, and flushes sometimes. Its reply is the
// scripted one of name.
func (c *scriptedClient) call(t testing.TB, name string, inLoop bool) *Answer {
	t.Helper()
	call := &Call{SHA: "alone", Name: name, Keys: []string{name, name + "r"}, Args: []string{"x"}}
	if c.route != byLane || !c.lane.serves() {
		c.openLane(t)
	}
	if inLoop {
		if a := c.TryAsk(call, nil, &eventloop.Iteration{}); a != nil {
			return a // the test flushes
		}
	}
	if err := c.Connect(context.Background(), Shared); err != nil {
		t.Fatal(err)
	}
	a := c.Ask(call)
	if rand.IntN(8) == 0 {
		c.Flush()
	}
	return a
}

const (
	batchSHA     = "together"
	batchRefusal = "-NOPERM not these\r\n"
)

// scriptedScripts is the reply to calls, alone or in a batch, which is refused sometimes.
func scriptedScripts(words []string) []byte {
	keys, _ := strconv.Atoi(words[2])
	if words[1] != batchSHA {
		return scriptedReply(words[3])
	}
	if rand.IntN(5) == 0 {
		return []byte(batchRefusal)
	}
	reply := fmt.Appendf(nil, "*%d\r\n", keys/2)
	for i := range keys / 2 {
		reply = append(reply, scriptedReply(words[3+2*i])...)
	}
	return reply
}

// serveWithPushes answers every request with what its name asks for, in pieces, with pushes
// between.
func serveWithPushes(lane net.Conn) {
	replies := make(chan []byte, 1000)
	go func() { // ends when the lane does, and with it the loop below
		defer close(replies)
		eachRequest(lane, func(words []string) bool {
			if words[0] == "EVALSHA" {
				replies <- scriptedScripts(words)
			} else {
				replies <- scriptedReply(words[0])
			}
			return true
		})
	}()
	var out []byte
	for reply := range replies {
		out = append(out, reply...)
		if rand.IntN(3) == 0 {
			out = append(out, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\na\r\n"...)
		}
		for len(out) > 0 && (len(replies) == 0 || rand.IntN(3) == 0) {
			n := 1 + rand.IntN(len(out))
			lane.Write(out[:n])
			out = out[n:]
		}
	}
}

func scriptedReply(name string) []byte {
	switch name[0] {
	case 'b':
		return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(name), name)
	case 'a':
		return fmt.Appendf(nil, "*3\r\n$7\r\nmessage\r\n+%s\r\n*2\r\n_\r\n>1\r\n:1\r\n", name)
	case 'n':
		return []byte("$-1\r\n")
	case 'e':
		return []byte("-ERR " + name + "\r\n")
	}
	return []byte("+" + name + "\r\n")
}

// When a lane is lost, each client is told of each request: the reply, that its outcome is unknown,
// or that it was never sent. What was never sent never reached the upstream; and all of them go on.
func TestLaneLost(t *testing.T) {
	unsentSeen := 0
	for round := range 6 {
		s := newScripted(t, 1)
		clients, lane := s.threeOnALane(t)
		lane.(*net.TCPConn).SetReadBuffer(4 << 10)
		take := rand.IntN(40)
		received := map[string]bool{}
		done := make(chan struct{})
		go func() { // ends when it has taken enough, or closed
			defer close(done)
			n := 0
			eachRequest(lane, func(words []string) bool {
				if words[0] == "PING" {
					// it ends, though the clients may have begun to avoid it
					lane.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
					lane.Write([]byte("+PONG\r\n"))
					return true
				}
				n++
				received[words[1]] = true
				if n%2 == 0 {
					fmt.Fprintf(lane, "+%s\r\n+%s\r\n", "odd", words[1])
				}
				return n < take
			})
			time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond)
			lane.Close()
		}()
		var asking sync.WaitGroup
		for i, c := range clients {
			if got := c.line(t); got != "+PONG" {
				t.Fatal(got)
			}
			asking.Go(func() {
				for j := range 60 {
					set := []string{"SET", fmt.Sprintf("%d-%d", i, j), strings.Repeat("x", 60<<10)}
					if rand.IntN(2) == 0 && c.tryAsk(set...) {
						continue
					}
					c.ask(t, set...)
					if rand.IntN(2) == 0 {
						c.Flush()
					}
				}
				c.Flush()
			})
		}
		// what comes by later lanes is answered at once
		var serving sync.WaitGroup
		stop := make(chan struct{})
		serving.Go(func() { // ends with the clients
			for {
				select {
				case conn := <-s.conns:
					serving.Go(func() {
						eachRequest(conn, func(words []string) bool {
							fmt.Fprintf(conn, "+later\r\n")
							return true
						})
						conn.Close()
					})
				case <-stop:
					return
				}
			}
		})
		asking.Wait()
		<-done
		for i, c := range clients {
			for j := range 60 {
				switch got := c.line(t); {
				case got == "-UNSENT":
					unsentSeen++
					if received[fmt.Sprintf("%d-%d", i, j)] {
						t.Errorf("round %d: %d-%d was sent, its client is told otherwise", round, i,
							j)
					}
				case got == "-SENT", got == "+later", got == "+odd":
				case got == fmt.Sprintf("+%d-%d", i, j):
					if !received[got[1:]] {
						t.Errorf("round %d: %s was answered before it was asked", round, got)
					}
				default:
					t.Fatalf("round %d: %d-%d is answered %q", round, i, j, got)
				}
			}
			c.ask(t, "after")
			c.Flush()
			if got := c.line(t); got != "+later" {
				t.Errorf("round %d: afterwards %q", round, got)
			}
			c.End(AtOnce)
			c.Wait()
		}
		close(stop)
		s.lanes.Close()
		serving.Wait()
	}
	if unsentSeen == 0 {
		t.Error("no round has lost a request before it was sent: the test shows nothing of these")
	}
}

// A session that waits for room on a lane, whose upstream takes nothing, ends when it is told to.
func TestCloseWhileWaitingForRoomOnALane(t *testing.T) {
	s := newScripted(t, 1)
	near, far := net.Pipe() // takes nothing
	defer far.Close()
	c := s.client(t)
	c.lane, c.route = newLane(poolKey{Identity: c.pending.Identity}, near, &Pool{}), byLane
	c.lane.users = 1
	waiting := make(chan struct{})
	go func() { // ends when the Pipe is closed; the test waits for it
		defer close(waiting)
		for range 2 * maxGathered / bufSize {
			c.Relay(Request{Raw: make([]byte, bufSize)})
			c.Flush()
		}
	}()
	select {
	case <-waiting:
		t.Fatal("there was room")
	case <-time.After(50 * time.Millisecond):
	}
	c.End(AtOnce)
	select {
	case <-waiting:
	case <-time.After(5 * time.Second):
		t.Fatal("it waits after Close")
	}
	c.lane = nil // no lane of s.lanes
	c.Wait()
}

// A login that failed in the midst may have been made, or made in part: nobody else is given its
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
		s.Admitted, s.InMulti = true, true
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

// What a lane has no room for at the end of an iteration follows as soon as it has, with what is
// asked meanwhile behind it, by whichever way that goes; and nobody waits for it who doesn't ask
// too much.
func TestIterationsWithoutRoom(t *testing.T) {
	s := newScripted(t, 1)
	clients, lane := s.threeOnALane(t)
	read, over := make(chan struct{}), make(chan struct{})
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
	var serving sync.WaitGroup
	serving.Go(func() { answer(lane) })
	// ends with over; there are further lanes when the machine is so slow that the first seems
	// silent
	serving.Go(func() {
		for {
			select {
			case lane, ok := <-s.conns:
				if !ok {
					return // the test has failed
				}
				serving.Go(func() { answer(lane) })
			case <-over:
				return
			}
		}
	})
	// full before a slow machine's lane seems silent
	for _, side := range []net.Conn{clients[0].lane.conn, lane} {
		side.(interface{ SetReadBuffer(bytes int) error }).SetReadBuffer(64 << 10)
		side.(interface{ SetWriteBuffer(bytes int) error }).SetWriteBuffer(64 << 10)
	}
	left, inLoop := 0, 0
	for _, c := range clients {
		if got := c.line(t); got != "+PONG" {
			t.Fatal(got)
		}
	}
	for j := range 400 {
		i := j % len(clients)
		c, l := clients[i], clients[i].lane
		if !c.tryAsk("SET", fmt.Sprintf("%d-%d", i, j), strings.Repeat("x", 60<<10)) {
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
				c.ask(t, "SET", fmt.Sprintf("%d-%d", i, 1000+j), "x")
				c.Flush()
			}
		})
	}
	time.Sleep(10 * time.Millisecond)
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
	close(over)
	s.lanes.Close()
	serving.Wait()
}
