package passthrough

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// told is a Waiter that counts, whenever it is told, which answers have arrived.
type told struct {
	pipe *Pipe

	mu      sync.Mutex
	asked   []*Answer // guarded by mu
	arrived int       // guarded by mu
}

// Answered takes the client's mu in an iteration, as a session does.
func (w *told) Answered(it *eventloop.Iteration) {
	if it != nil {
		w.pipe.State()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arrived = 0
	for _, a := range w.asked {
		if a.Arrived() {
			w.arrived++
		}
	}
}

func (w *told) add(a *Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, a)
}

// wait waits until it was told of all that has been asked.
func (w *told) wait(t *testing.T) {
	t.Helper()
	testwait.Until(t, "the Waiter was told of all answers", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.arrived != len(w.asked) {
			return false
		}
		w.asked, w.arrived = nil, 0
		return true
	})
}

// Calls by a home go together, wherever the upstream's bytes are cut, each gets its own reply, and
// plain requests in between keep their places.
func TestCallsByAHome(t *testing.T) {
	s := newScripted(t, 0)
	s.lanes.BatchScript = batchSHA
	c := s.client(t)
	if err := c.Route(context.Background(), Home, nil); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	batches := 0
	serving.Go(func() { // ends with the home
		home := <-s.conns
		eachRequest(home, func(words []string) bool {
			reply := scriptedReply(words[0])
			if words[0] == "EVALSHA" {
				reply = scriptedScripts(words)
				if words[1] == batchSHA {
					batches++
				}
			}
			for len(reply) > 0 {
				n := 1 + rand.IntN(len(reply))
				home.Write(reply[:n])
				reply = reply[n:]
			}
			return true
		})
	})
	w := &told{pipe: c.Pipe}
	const kinds = "sbane"
	refused := 0
	for round := range 300 {
		due := ""
		answers := map[string]*Answer{}
		for i := range 1 + rand.IntN(80) {
			name := fmt.Sprintf("%c%d-%d", kinds[rand.IntN(len(kinds))], round, i)
			call := &Call{SHA: "alone", Name: name, Keys: []string{name, name + "r"}}
			switch rand.IntN(4) {
			case 0:
				due += string(scriptedReply(name))
				c.Relay(Request{Raw: wire.Append(nil, name)}, nil)
			case 1:
				answers[name] = c.Ask(call, nil)
			default:
				a := c.askInLoop(call, w)
				if a != nil {
					w.add(a)
				} else {
					a = c.Ask(call, nil)
				}
				answers[name] = a
			}
		}
		c.Flush(nil)
		for got := ""; got != due; {
			b, err := c.in.ReadByte()
			if got += string(b); err != nil || len(got) > len(due) || due[:len(got)] != got {
				t.Fatalf("got %q, %v; want %q", got, err, due)
			}
		}
		refused += answeredAsAsked(t, answers)
		w.wait(t)
	}
	c.End(AtOnce)
	c.Wait()
	serving.Wait()
	if batches < 300 || refused == 0 {
		t.Errorf("%d batches, %d calls refused", batches, refused)
	}
}

// Calls about the same key do not go together, nor too many, nor any for a while after a batch was
// refused. What does not go together keeps its order.
func TestCallsThatGoTogether(t *testing.T) {
	var b callBatch
	var sent [][]string
	take := func() {
		eachRequest(&textConn{text: b.drain(nil, batchSHA)}, func(words []string) bool {
			sent = append(sent, words)
			return true
		})
	}
	add := func(key string) {
		c := &Call{SHA: "alone", Name: "n", Keys: []string{key, key + "r"}, Args: []string{"1"}}
		if b.has(c) {
			take()
		}
		if b.add(&Answer{call: c}, batchSHA) {
			take()
		}
	}
	check := func(want ...string) {
		t.Helper()
		if got := fmt.Sprint(sent); got != fmt.Sprint(want) {
			t.Errorf("sent %s, want %s", got, want)
		}
		sent = nil
	}
	add("a")
	add("b")
	add("ar")
	add("a")
	take()
	check("[EVALSHA together 4 a ar b br n 1 n 1]", "[EVALSHA alone 2 ar arr 1]",
		"[EVALSHA alone 2 a ar 1]")
	for i := range maxCalls {
		add(fmt.Sprint(i))
	}
	if len(sent) != 1 || len(b.list) != 0 {
		t.Errorf("%d requests for %d calls, %d wait", len(sent), maxCalls, len(b.list))
	}
	sent = nil
	add("short")
	add(strings.Repeat("long", maxCallBytes))
	if len(sent) != 1 || len(b.list) != 0 || b.bytes != 0 {
		t.Errorf("a long key goes with what comes after it")
	}
	sent = nil
	b.pause()
	add("a")
	add("b")
	check("[EVALSHA alone 2 a ar 1]", "[EVALSHA alone 2 b br 1]")
}

// textConn is a connection by which a text comes.
type textConn struct {
	net.Conn
	text []byte
}

func (c *textConn) Read(b []byte) (int, error) {
	n := copy(b, c.text)
	c.text = c.text[n:]
	if n == 0 {
		return 0, net.ErrClosed
	}
	return n, nil
}

// Waiters whose answers are lost with the connection are told.
func TestCallsThatAreLost(t *testing.T) {
	for _, lanes := range []int{0, 1} {
		s := newScripted(t, lanes)
		s.lanes.BatchScript = batchSHA
		c := s.client(t)
		if lanes == 0 {
			if err := c.Route(context.Background(), Home, nil); err != nil {
				t.Fatal(err)
			}
		} else {
			c.openLane(t)
			other := s.client(t) // a client by itself gets no lane
			other.ask(t, "PING")
			other.Flush(nil)
			defer other.End(AtOnce)
		}
		conn := <-s.conns
		if lanes > 0 {
			io.WriteString(conn, "+PONG\r\n")
		}
		w := &told{pipe: c.Pipe}
		var answers []*Answer
		for i := range 3 {
			key := fmt.Sprint(i)
			call := &Call{SHA: "alone", Name: "n", Keys: []string{key, key + "r"}}
			a := c.askInLoop(call, w)
			if a == nil {
				t.Fatal("the call would have to wait")
			}
			w.add(a)
			answers = append(answers, a)
		}
		c.Flush(nil)
		if lanes > 0 {
			c.lanes.lane.Flush()
		}
		conn.Write([]byte("*3\r\n:7\r\n:")) // the first has its reply
		conn.(*net.TCPConn).CloseWrite()
		w.wait(t)
		if raw, err := answers[0].Raw(); string(raw) != ":7\r\n" || err != nil {
			t.Errorf("the first: %q, %v", raw, err)
		}
		for _, a := range answers[1:] {
			if raw, err := a.Raw(); err == nil {
				t.Errorf("a lost one: %q, %v", raw, err)
			}
		}
		c.End(AtOnce)
		c.Wait()
	}
}
