package relay_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// The reply to QUIT comes before the end of the connection,
// in whatever order the session's goroutines run.
func TestQuitIsAlwaysAnswered(t *testing.T) {
	t.Parallel()
	p := proxytest.Start(t, testredis.Start(t).URL(), nil)
	for range 2000 {
		c := proxytest.Dial(t, p.Addr)
		c.Send("PING", "QUIT")
		if got, err := io.ReadAll(c.In); string(got) != "+PONG\r\n+OK\r\n" || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
		c.Close()
	}
}

// A client is answered everything before QUIT even where only Redis knows what it is owed: behind an
// AUTH that was too large to be read.
func TestQuitBehindALargeLogin(t *testing.T) {
	t.Parallel()
	p := proxytest.Start(t, testredis.Start(t).URL(), nil)
	for range 6 {
		c := proxytest.Dial(t, p.Addr)
		login := strings.Repeat("v", 2<<20)
		c.Send("AUTH default "+login, "ECHO "+login, "PING", "QUIT")
		got, err := io.ReadAll(c.In)
		want := "+OK\r\n$2097152\r\n" + login + "\r\n+PONG\r\n+OK\r\n"
		if string(got) != want || err != nil {
			t.Fatalf("got %d bytes, not %d: %v", len(got), len(want), err)
		}
		c.Close()
	}
}

// quitters are ways to come to QUIT: the requests before it,
// each sent after the reply to the one before.
var quitters = map[string][]string{"new": nil, "on a lane": {"PING", "PING"},
	"in MULTI": {"MULTI", "PING"}, "with SUBSCRIBE": {"HELLO 3", "SUBSCRIBE a"}}

// The end of the connection comes in one packet with the reply to QUIT: a client that has read the
// reply finds the connection closed, and doesn't send into it.
func TestQuitEndsWithTheAnswer(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	for _, dedicated := range []bool{false, true} {
		for name, before := range quitters {
			t.Run(fmt.Sprintf("dedicated=%v/%s", dedicated, name), func(t *testing.T) {
				p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
					cfg.Dedicated = dedicated
				})
				// The kernel does not wait for longer than 200 ms: a machine that stops for that
				// long spoils a round.
				const rounds, clients, quits = 2, 8, 20
				for round := 0; ; round++ {
					var wg sync.WaitGroup
					var open atomic.Int64
					for range clients {
						wg.Go(func() {
							for range quits {
								if !endsWithQuit(t, p.Addr, before) {
									open.Add(1)
								}
							}
						})
					}
					if wg.Wait(); open.Load() == 0 || t.Failed() {
						break
					}
					if round == rounds {
						t.Fatalf("in each round connections were open when +OK had been read, "+
							"%d of %d in the last", open.Load(), clients*quits)
					}
				}
			})
		}
	}
}

// endsWithQuit reports whether a client that has read the reply to QUIT finds its connection closed.
func endsWithQuit(t *testing.T, addr string, before []string) bool {
	c := proxytest.Dial(t, addr)
	defer c.Close()
	for _, command := range before {
		c.Do(command)
	}
	c.Expect("QUIT", "+OK\r\n")
	ended := proxytest.KnowsEnd(t, c.Conn)
	c.Closed()
	return ended
}

// Requests after QUIT are not run, and don't cost the client the reply, even if it reads late.
func TestQuitWithMoreAfterIt(t *testing.T) {
	server := testredis.Start(t)
	for _, dedicated := range []bool{false, true} {
		p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = dedicated })
		for i := range 100 {
			c := proxytest.Dial(t, p.Addr)
			if i%2 == 0 {
				c.Expect("PING", "+PONG\r\n")
			}
			c.Send("QUIT", "SET quit 1")
			// fails if the proxy has closed already
			c.Write([]byte(strings.Repeat("PING\r\n", 30000)))
			testwait.Until(t, "there is a reply", c.Arrived)
			c.SetReadDeadline(testwait.Deadline())
			// The end is a reset if the machine stops while the proxy skips the rest.
			if got, err := io.ReadAll(c.In); string(got) != "+OK\r\n" || proxytest.IsTimeout(err) {
				t.Fatalf("dedicated %v, client %d: got %q, %v", dedicated, i, got, err)
			}
			c.Close()
		}
	}
	proxytest.Dial(t, server.Addr()).Expect("EXISTS quit", ":0\r\n")
}

// After QUIT it is clear why Redis has closed the client's home: the client's session locks are
// released.
func TestQuitOfALockHolder(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	next := proxytest.Dial(t, p.Addr)
	for range 21 {
		c := proxytest.Dial(t, p.Addr)
		c.Lock("job 600 SESSION")
		c.Expect("QUIT", "+OK\r\n")
		c.Close()
		testwait.Until(t, "the lock is free", func() bool {
			return next.Do("LOCK job 600") != "$-1\r\n"
		})
		next.Expect("UNLOCK job", ":1\r\n")
	}
}
