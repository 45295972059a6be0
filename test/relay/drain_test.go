package relay_test

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// A client that sends one command after another gets the end of its connection together with a
// reply, before it can send the next command.
func TestDrainEndsWithTheAnswer(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	proxytest.GoRedis(t, server.Addr()).Set(proxytest.Ctx, "large", strings.Repeat("x", 20000), 0)
	const clients = 300
	var ready, done sync.WaitGroup
	ready.Add(clients)
	begun := make(chan struct{})
	for i := range clients {
		c := proxytest.Dial(t, p.Addr)
		done.Go(func() {
			command, want := "PING", "+PONG\r\n"
			if i%3 == 1 {
				command, want = "GET large", "$20000\r\n"+strings.Repeat("x", 20000)+"\r\n"
			} else if i%3 == 2 {
				command, want = "BLPOP nothing 0.01", "*-1\r\n"
			}
			answer := make([]byte, len(want))
			ask := func() bool {
				c.SetDeadline(time.Now().Add(5 * time.Second))
				_, err := c.Write([]byte(command + "\r\n"))
				if err == nil {
					_, err = io.ReadFull(c.Conn, answer)
				}
				if err != nil || string(answer) != want {
					t.Errorf("client %d: %.20q, %v", i, answer, err)
				}
				return err == nil
			}
			ask()
			ready.Done()
			<-begun
			for n := 0; ; n++ {
				time.Sleep(time.Duration(i%7) * time.Millisecond)
				if proxytest.KnowsEnd(t, c.Conn) || !ask() {
					return
				}
			}
		})
	}
	ready.Wait()
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	close(begun)
	done.Wait()
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// With TLS, too, the close notification comes with the reply.
func TestDrainEndsWithTheAnswerOverTLS(t *testing.T) {
	server := testredis.Start(t)
	p, trusting := startTLS(t, server.URL(), nil)
	var clients []*proxytest.Conn
	for range 10 {
		c := dialTLS(t, p.Addr, trusting)
		c.Expect("PING", "+PONG\r\n")
		clients = append(clients, c)
	}
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	for i, c := range clients {
		c.Expect("PING", "+PONG\r\n")
		ended := make(chan error, 1)
		go func() { // ends with the test's connections at the latest
			_, err := c.In.ReadByte()
			ended <- err
		}()
		select {
		case err := <-ended:
			if err != io.EOF {
				t.Errorf("client %d is told %v after its answer", i, err)
			}
		case <-time.After(200*time.Millisecond + proxytest.Late()):
			// much less than it would keep its connection otherwise
			t.Errorf("client %d has its answer, and its connection is still open", i)
		}
	}
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A pipeline is answered whole, and a request that has begun to arrive is completed.
func TestDrainAnswersAllThatWasSent(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	burst, partial, slow := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	for _, c := range []*proxytest.Conn{burst, partial, slow} {
		c.Expect("PING", "+PONG\r\n")
	}
	partial.WriteRaw("*2\r\n$4\r\nECHO\r\n$5\r\nhe")
	slow.Send("BLPOP nothing 0.4", "ECHO behind")
	time.Sleep(50 * time.Millisecond)
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	var many []string
	for range 1000 {
		many = append(many, "INCR n")
	}
	burst.Send(many...)
	for i := range many {
		if got := burst.Reply(); got[0] != ':' {
			t.Fatalf("answer %d: %q", i, got)
		}
	}
	burst.Closed()
	time.Sleep(1100 * time.Millisecond) // longer than the proxy waits for an idle client
	partial.WriteRaw("llo\r\n")
	if got := partial.Reply(); got != "$5\r\nhello\r\n" {
		t.Errorf("a request in two parts: %q", got)
	}
	partial.Closed()
	for _, want := range []string{"*-1\r\n", "$6\r\nbehind\r\n"} {
		if got := slow.Reply(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	slow.Closed()
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// Transactions are finished, and locks released, by the connections that began and took them.
func TestDrainWaitsForTransactionsAndLocks(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	trade, watch, plain, session, short := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	trade.Expect("MULTI", "+OK\r\n")
	trade.Expect("INCR n", "+QUEUED\r\n")
	watch.Expect("WATCH n", "+OK\r\n")
	plain.Lock("job 30")
	session.Lock("other 30 SESSION")
	short.Lock("third 1.5")
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	time.Sleep(1200 * time.Millisecond)
	trade.Expect("INCR n", "+QUEUED\r\n")
	trade.Expect("EXEC", "*2\r\n:1\r\n:2\r\n")
	trade.Closed()
	watch.Expect("GET n", "$1\r\n2\r\n")
	watch.Expect("UNWATCH", "+OK\r\n")
	watch.Closed()
	plain.Expect("SET a 1", "+OK\r\n")
	plain.Expect("UNLOCK job", ":1\r\n")
	plain.Closed()
	session.Expect("UNLOCK other", ":1\r\n")
	session.Closed()
	short.Closed() // its lease is over
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// When the time for shutting down is over, session locks are
// released and connections closed; other locks stay.
func TestDrainReleasesSessionLocksInTheEnd(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	plain, session := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := plain.Lock("job 30")
	session.Lock("other 30 SESSION")
	ctx, over := context.WithCancel(proxytest.Ctx)
	wait := proxytest.Shutdown(ctx, t, p)
	over()
	if err := wait(); err == nil {
		t.Error("Shutdown: clients were left, and there is no error")
	}
	session.Closed()
	again := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
	again.Lock("other 30")
	again.Expect("LOCK job 30", "$-1\r\n")
	again.Expect(proxytest.Unlock("job", token), ":1\r\n")
}

// A waiting client is told at once to ask elsewhere, and so is one that asks for a held lock during
// the drain. A free lock is still given. go-redis repeats the request elsewhere by itself.
func TestDrainSendsWaitersElsewhere(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	other := proxytest.Start(t, server.URL(), nil)
	holder, waiting, late := proxytest.Dial(t, other.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	holder.Lock("job 30")
	waiting.Send("LOCK job 30 WAIT 0")
	addr := p.Addr
	client := redis.NewClient(&redis.Options{
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := net.Dial("tcp", addr)
			addr = other.Addr
			return nc, err
		},
		PoolSize: 1, ReadTimeout: -1, DisableIdentity: true,
	})
	defer client.Close()
	got := make(chan error, 1)
	// ends when holder releases, or in 5 s
	go func() { got <- client.Do(proxytest.Ctx, "LOCK", "job", "30", "WAIT", "5").Err() }()
	proxytest.AwaitWaiters(t, p, "job", 2)
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	began := time.Now()
	if got := waiting.Reply(); !strings.HasPrefix(got, "-TRYAGAIN ") ||
		time.Since(began) > 200*time.Millisecond+proxytest.Late() {
		t.Errorf("the waiter is told %q after %v", got, time.Since(began))
	}
	waiting.Closed()
	late.Send("LOCK free 30", "LOCK job 30 WAIT 0", "UNLOCK free")
	for _, want := range []string{":", "-TRYAGAIN ", ":1\r\n"} {
		if got := late.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("a late client is told %q, want %q", got, want)
		}
	}
	late.Closed()
	proxytest.AwaitWaiters(t, other, "job", 1)
	holder.Expect("UNLOCK job", ":1\r\n")
	if err := <-got; err != nil {
		t.Errorf("go-redis: %v", err)
	}
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A client whose connection the kernel has accepted is served, although the drain has begun.
func TestDrainServesConnectedClients(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	for range 50 {
		c := proxytest.Dial(t, p.Addr)
		c.WriteRaw("PING\r\n")
	}
	last := proxytest.Dial(t, p.Addr)
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	last.Expect("PING", "+PONG\r\n")
	last.Closed()
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr); err == nil || os.IsTimeout(err) {
		t.Errorf("a client after the end: %v", err)
	}
}
