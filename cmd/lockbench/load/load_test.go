package load

import (
	"bufio"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// serve answers every line of every client by what answer returns for it, nothing if that is empty;
// PING's three lines, with which clients begin, by PONG. It ends with the test.
func serve(t *testing.T, answer func(line string) string) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(func() { ln.Close() })
	running.Go(func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			running.Go(func() { answerLines(nc, answer) })
		}
	})
	return ln.Addr().String()
}

func answerLines(nc net.Conn, answer func(line string) string) {
	defer nc.Close()
	in := bufio.NewReader(nc)
	for {
		line, err := in.ReadString('\n')
		switch {
		case err != nil:
			return
		case line == "PING\r\n":
			nc.Write([]byte("+PONG\r\n"))
		case line[0] == '*' || line[0] == '$':
		default:
			reply := answer(line)
			if reply == "close" {
				return
			}
			nc.Write([]byte(reply))
		}
	}
}

func open10(t *testing.T, addr string) *Clients {
	t.Helper()
	c, err := Open(addr, 10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestClosedLoop(t *testing.T) {
	var count atomic.Int64
	c := open10(t, serve(t, func(string) string { count.Add(1); return "+OK\r\n" }))
	for range 2 { // the same clients can drive again
		count.Store(0)
		r, err := c.Drive(t.Context(), Plan{Request: []byte("a\r\n"), Reply: []byte("+OK\r\n"),
			Time: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		served := int(count.Load())
		if r.Unanswered != 0 || len(r.Latencies) != served || served == 0 {
			t.Errorf("%d latencies, %d unanswered, of %d requests served", len(r.Latencies),
				r.Unanswered, served)
		}
		if answered := int(r.Rate*0.2 + 0.5); answered > served || answered < served-10 {
			t.Errorf("rate of %v/s in 0.2 s, but %d served", r.Rate, served)
		}
	}
}

func TestOpenLoopCountsAStallForAllThatItDelays(t *testing.T) {
	var once sync.Once
	var mu sync.Mutex
	addr := serve(t, func(string) string {
		mu.Lock() // one request at a time, as Redis
		defer mu.Unlock()
		once.Do(func() { time.Sleep(400 * time.Millisecond) })
		return "+OK\r\n"
	})
	const rate = 1000
	r, err := open10(t, addr).Drive(t.Context(), Plan{Request: []byte("a\r\n"),
		Reply: []byte("+OK\r\n"), Time: time.Second, Rate: rate, Grace: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Latencies) != rate || r.Unanswered != 0 {
		t.Errorf("%d latencies and %d unanswered of %d requests", len(r.Latencies), r.Unanswered,
			rate)
	}
	slow := 0
	for _, l := range r.Latencies {
		if l > 100*time.Millisecond {
			slow++
		}
	}
	// Of those due in the first 300 ms all waited longer. Counted from when they were sent it would
	// be ten, one for each client.
	if slow < 290 {
		t.Errorf("only %d requests waited 100 ms or longer", slow)
	}
}

func TestUnanswered(t *testing.T) {
	c := open10(t, serve(t, func(string) string { return "" }))
	r, err := c.Drive(t.Context(), Plan{Request: []byte("a\r\n"), Reply: []byte("+OK\r\n"),
		Time: 100 * time.Millisecond, Rate: 500})
	if err != nil {
		t.Fatal(err)
	}
	if r.Unanswered != 50 || len(r.Latencies) != 50 || r.Rate != 0 {
		t.Errorf("%d unanswered of 50, %d latencies, %v/s", r.Unanswered, len(r.Latencies), r.Rate)
	}
	for _, l := range r.Latencies {
		if l < DefaultGrace {
			t.Fatalf("an unanswered request counts as %v", l)
		}
	}
}

func TestOpenLoopKeepsItsRate(t *testing.T) {
	c := open10(t, serve(t, func(string) string { return "+OK\r\n" }))
	r, err := c.Drive(t.Context(), Plan{Request: []byte("a\r\n"), Reply: []byte("+OK\r\n"),
		Time: 2 * time.Second, Rate: 2000})
	if err != nil || len(r.Latencies) != 4000 || r.Rate < 1500 || r.Rate > 2000 {
		t.Errorf("%d latencies, %v/s: %v", len(r.Latencies), r.Rate, err)
	}
}

func TestReplyInPieces(t *testing.T) {
	c := open10(t, serve(t, func(line string) string { return line }))
	// Two lines are two replies, which come together or one after the other.
	r, err := c.Drive(t.Context(), Plan{Request: []byte("a\r\nb\r\n"), Reply: []byte("a\r\nb\r\n"),
		Time: 100 * time.Millisecond})
	if err != nil || len(r.Latencies) < 20 {
		t.Errorf("%d latencies: %v", len(r.Latencies), err)
	}
}

func TestWrongReply(t *testing.T) {
	for _, reply := range []string{"-ERR no\r\n", "+OK\r\n+OK\r\n", "+OKAY\r\n"} {
		c := open10(t, serve(t, func(string) string { return reply }))
		_, err := c.Drive(t.Context(), Plan{Request: []byte("a\r\n"), Reply: []byte("+OK\r\n"),
			Time: time.Minute})
		var wrong *WrongReply
		if !errors.As(err, &wrong) {
			t.Errorf("%q: %v", reply, err)
		}
	}
}

func TestLostConnection(t *testing.T) {
	c := open10(t, serve(t, func(string) string { return "close" }))
	if _, err := c.Drive(t.Context(), Plan{Request: []byte("a\r\n"), Reply: []byte("+OK\r\n"),
		Time: time.Minute}); err == nil {
		t.Error("no error")
	}
}

func TestDriveEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := open10(t, serve(t, func(string) string { cancel(); return "" }))
	_, err := c.Drive(ctx, Plan{Request: []byte("a\r\n"), Reply: []byte("+OK\r\n"),
		Time: time.Minute})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestOpenFails(t *testing.T) {
	if _, err := Open("localhost:1", 1); err == nil {
		t.Error("a name was taken for an address")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if _, err := Open(ln.Addr().String(), 1); err == nil {
		t.Error("connected to nobody")
	}
}
