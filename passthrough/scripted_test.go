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

	"pgregory.net/rapid"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/panics"
	"lockproxy/internal/socket"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/internal/upstream"
)

const probing = "*1\r\n$4\r\nPING\r\n"

// asking is what a lane's first requests are.
var asking = [2]string{"*2\r\n$6\r\nCLIENT\r\n$4\r\nINFO\r\n",
	"*2\r\n$4\r\nINFO\r\n$6\r\nserver\r\n"}

// scripted is an upstream that a test plays.
type scripted struct {
	lanes *Pool
	conns chan net.Conn // as they are opened
}

func newPool(redis *upstream.Upstream, lanes int) *Pool {
	return NewPool(Config{Upstream: redis, LanesPerKey: lanes, DialTimeout: testwait.Patience,
		OnDial: func(error) {}, OnMoved: func(upstream.Server) {}, MaxUnread: 1 << 30, OnDropped: func(net.Addr, error) {},
		OnPanic: func(net.Addr, *panics.Panic) {}})
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
	s := &scripted{lanes: newPool(redis, lanes), conns: make(chan net.Conn, 1000)}
	loops, err := eventloop.Start(1)
	if err != nil {
		t.Fatal(err)
	}
	s.lanes.ReadIn(loops)
	var accepting sync.WaitGroup
	var mu sync.Mutex
	var asked []net.Conn  // guarded by mu
	accepting.Go(func() { // ends when ln does
		for {
			conn, err := ln.Accept()
			switch {
			case err != nil:
				return
			case lanes == 0:
				s.conns <- conn
				continue
			}
			mu.Lock()
			asked = append(asked, conn)
			mu.Unlock()
			// a lane's first requests ask whether it lets anybody in, and where it leads
			accepting.Go(func() { // ends with conn
				first := make([]byte, len(probing))
				_, err := io.ReadFull(conn, first)
				for err == nil && !strings.HasPrefix(asking[0], string(first)) { // it is a home
					io.WriteString(conn, "+PONG\r\n")
					_, err = io.ReadFull(conn, first)
				}
				_, err = io.ReadFull(conn, make([]byte, len(asking[0]+asking[1])-len(first)))
				if io.WriteString(conn, strings.Repeat("-ERR unknown\r\n", 2)); err == nil {
					s.conns <- conn
				}
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, conn := range asked {
			conn.Close()
		}
		mu.Unlock()
		accepting.Wait()
		close(s.conns)
		for conn := range s.conns {
			conn.Close()
		}
		s.lanes.Close()
		loops.Stop()
	})
	return s
}

// serve calls answer for each connection, until stop is called or the connections are closed. More
// than one lane is opened if the machine is so slow that the first seems silent.
func (s *scripted) serve(answer func(net.Conn)) (stop func()) {
	var serving sync.WaitGroup
	over := make(chan struct{})
	serving.Go(func() { // ends with over
		for {
			select {
			case conn, ok := <-s.conns:
				if !ok { // the test has failed
					return
				}
				serving.Go(func() { answer(conn) }) // ends when conn does
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		s.lanes.Close()
		serving.Wait()
	}
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
	p.c.pending.Admitted = true
	far.SetReadDeadline(testwait.Deadline())
	return &scriptedClient{p, far, bufio.NewReader(far)}
}

// openLane returns when there is a lane for the client's requests.
func (c *scriptedClient) openLane(t testing.TB) {
	t.Helper()
	ls, kind := c.c.pool, poolKey{Identity: c.c.pending.Identity}
	testwait.Until(t, "a lane is open", func() bool {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		set := ls.groups[kind]
		if set == nil {
			set = &laneGroup{}
			ls.groups[kind] = set
		}
		least, _ := set.leastUsed(&c.c.where)
		open := least != nil
		if !open && set.opening == nil {
			ls.startOpenLocked(kind, set)
		}
		return open
	})
}

// threeOnALane returns three clients that have sent a PING each by one lane, and the upstream's end
// of that.
func (s *scripted) threeOnALane(t testing.TB) (clients []*scriptedClient, lane net.Conn) {
	t.Helper()
	for range 3 {
		c := s.client(t)
		c.ask(t, "PING")
		c.Flush(nil)
		clients = append(clients, c)
	}
	return clients, <-s.conns
}

func (c *scriptedClient) ask(t testing.TB, words ...string) {
	t.Helper()
	for try := 0; ; try++ {
		if c.c.route != byLane || !c.lanes.lane.serves() {
			c.openLane(t)
		}
		if err := c.Route(context.Background(), Shared, nil); err != nil {
			t.Fatal(err)
		}
		if c.c.route == byLane { // otherwise the lane that was open has been lost meanwhile
			break
		}
		if try == 100 {
			t.Fatal("the client is at home")
		}
	}
	c.Relay(Request{Raw: wire.Append(nil, words...)}, nil)
}

// tryAsk does what ask and Flush do as an event loop does it, if that can be done. On a lane that
// others use, its iteration may end with theirs.
func (c *scriptedClient) tryAsk(words ...string) bool {
	r := Request{Raw: wire.Append(nil, words...)}
	if !c.relayInLoop(r, Shared, &eventloop.Iteration{}) {
		return false
	}
	if rand.IntN(2) == 0 {
		runtime.Gosched() // others add to it
	}
	c.lanes.lane.Flush()
	return true
}

// relayInLoop is Route and Relay of an event loop.
func (c *scriptedClient) relayInLoop(r Request, way Way, it *eventloop.Iteration) bool {
	return c.Route(context.Background(), way, it) == nil && c.Relay(r, it)
}

// askInLoop is Route and Ask of an event loop; nil if it would have to wait.
func (c *scriptedClient) askInLoop(call *Call, w Waiter) *Answer {
	it := &eventloop.Iteration{}
	if c.Waiter = w; c.Route(context.Background(), Shared, it) != nil {
		return nil
	}
	return c.Ask(call, it)
}

// call asks for a script, as an event loop does it or not, and flushes sometimes. Its reply is the
// scripted one of name.
func (c *scriptedClient) call(t testing.TB, name string, inLoop bool) *Answer {
	t.Helper()
	call := &Call{SHA: "alone", Name: name, Keys: []string{name, name + "r"}, Args: []string{"x"}}
	if c.c.route != byLane || !c.lanes.lane.serves() {
		c.openLane(t)
	}
	if inLoop {
		if a := c.askInLoop(call, nil); a != nil {
			return a // the test flushes
		}
	}
	if err := c.Route(context.Background(), Shared, nil); err != nil {
		t.Fatal(err)
	}
	a := c.Ask(call, nil)
	if rand.IntN(8) == 0 {
		c.Flush(nil)
	}
	return a
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
	for in := bufio.NewReader(conn); ; {
		if words, err := wire.ReadCommand(in); err != nil || !f(words) {
			return
		}
	}
}

const (
	batchSHA     = "together"
	batchRefusal = "-NOPERM >>> not these\r\n"
)

func scriptedReply(name string) []byte {
	switch name[0] {
	case 'b':
		return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(name), name)
	case 'a':
		return fmt.Appendf(nil, "*3\r\n$7\r\nmessage\r\n+%s\r\n*2\r\n_\r\n~1\r\n:1\r\n", name)
	case 'n':
		return []byte("$-1\r\n")
	case 'e':
		return []byte("-ERR " + name + "\r\n")
	}
	return []byte("+" + name + "\r\n")
}

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

// answeredAsAsked fails unless the answers to calls are the scripted ones of their names, or say
// that the batch was refused. It returns how many were refused.
func answeredAsAsked(t rapid.TB, answers map[string]*Answer) (refused int) {
	t.Helper()
	for name, a := range answers {
		raw, err := a.Raw()
		switch {
		case err == nil && string(raw) == string(scriptedReply(name)) && !a.refused:
		case err == nil && string(raw) == batchRefusal && a.Refused():
			refused++
			a.with.pausedUntil.Store(0)
		default:
			t.Fatalf("call %s was answered %q, %v, refused: %v", name, raw, err, a.refused)
		}
	}
	return refused
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
