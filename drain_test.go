package lockproxy_test

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/testredis"
)

// shutdown begins to shut a proxy down, within a time, and returns what waits for the end of that.
func shutdown(t *testing.T, p *testProxy, within time.Duration) (wait func() error) {
	t.Helper()
	bounded, cancel := context.WithTimeout(ctx, within)
	ended := make(chan error, 1)
	go func() { ended <- p.server.Shutdown(bounded) }() // ends within the time
	eventually(t, time.Second, "it drains", func() bool { return p.server.Stats().Draining })
	return func() error {
		defer cancel()
		return <-ended
	}
}

// knows reports whether the kernel has told a client already that its connection has ended, once it has read all.
func knows(t *testing.T, nc net.Conn) bool {
	t.Helper()
	control, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	ended := false
	control.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		ended = n == 0 && err == nil
	})
	return ended
}

// A client that asks one thing after another has the end of its connection with its answer: before it could send the next command.
func TestDrainEndsWithTheAnswer(t *testing.T) {
	server, p := startBoth(t)
	goRedis(t, server.Addr()).Set(ctx, "large", strings.Repeat("x", 20000), 0)
	const clients = 300
	var ready, done sync.WaitGroup
	ready.Add(clients)
	begun := make(chan struct{})
	for i := range clients {
		c := dial(t, p.addr)
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
				if knows(t, c.Conn) || !ask() {
					return
				}
			}
		})
	}
	ready.Wait()
	wait := shutdown(t, p, 10*time.Second)
	close(begun)
	done.Wait()
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// With TLS the end of what is said comes with the answer too.
func TestDrainEndsWithTheAnswerOverTLS(t *testing.T) {
	server := testredis.Start(t)
	p, trusting := tpTLSProxy(t, server.URL(), nil)
	var clients []*rawConn
	for range 10 {
		c := tpDialTLS(t, p.addr, trusting)
		c.expect("PING", "+PONG\r\n")
		clients = append(clients, c)
	}
	wait := shutdown(t, p, 10*time.Second)
	for i, c := range clients {
		c.expect("PING", "+PONG\r\n")
		ended := make(chan error, 1)
		go func() { // ends with the test's connections at the latest
			_, err := c.in.ReadByte()
			ended <- err
		}()
		select {
		case err := <-ended:
			if err != io.EOF {
				t.Errorf("client %d is told %v behind its answer", i, err)
			}
		case <-time.After(200 * time.Millisecond): // much less than it would keep its connection otherwise
			t.Errorf("client %d has its answer, and is not told of the end", i)
		}
	}
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// What a client has sent together is all answered, and what it has begun to send is finished.
func TestDrainAnswersAllThatWasSent(t *testing.T) {
	_, p := startBoth(t)
	burst, partial, slow := dial(t, p.addr), dial(t, p.addr), dial(t, p.addr)
	for _, c := range []*rawConn{burst, partial, slow} {
		c.expect("PING", "+PONG\r\n")
	}
	partial.write("*2\r\n$4\r\nECHO\r\n$5\r\nhe")
	slow.send("BLPOP nothing 0.4", "ECHO behind")
	time.Sleep(50 * time.Millisecond)
	wait := shutdown(t, p, 10*time.Second)
	var many []string
	for range 1000 {
		many = append(many, "INCR n")
	}
	burst.send(many...)
	for i := range many {
		if got := burst.reply(); got[0] != ':' {
			t.Fatalf("answer %d: %q", i, got)
		}
	}
	burst.closed()
	time.Sleep(1100 * time.Millisecond) // longer than who sends nothing is waited for
	partial.write("llo\r\n")
	if got := partial.reply(); got != "$5\r\nhello\r\n" {
		t.Errorf("what was sent in two parts: %q", got)
	}
	partial.closed()
	for _, want := range []string{"*-1\r\n", "$6\r\nbehind\r\n"} {
		if got := slow.reply(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	slow.closed()
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// Transactions are finished, and locks released, by the connections that began and took them.
func TestDrainWaitsForTransactionsAndLocks(t *testing.T) {
	_, p := startBoth(t)
	trade, watch, plain, session, short := dial(t, p.addr), dial(t, p.addr), dial(t, p.addr), dial(t, p.addr), dial(t, p.addr)
	trade.expect("MULTI", "+OK\r\n")
	trade.expect("INCR n", "+QUEUED\r\n")
	watch.expect("WATCH n", "+OK\r\n")
	plain.lock("job 30")
	session.lock("other 30 SESSION")
	short.lock("third 1.5")
	wait := shutdown(t, p, 10*time.Second)
	time.Sleep(1200 * time.Millisecond)
	trade.expect("INCR n", "+QUEUED\r\n")
	trade.expect("EXEC", "*2\r\n:1\r\n:2\r\n")
	trade.closed()
	watch.expect("GET n", "$1\r\n2\r\n")
	watch.expect("UNWATCH", "+OK\r\n")
	watch.closed()
	plain.expect("SET a 1", "+OK\r\n")
	plain.expect("UNLOCK job", ":1\r\n")
	plain.closed()
	session.expect("UNLOCK other", ":1\r\n")
	session.closed()
	short.closed() // its lock's time is over
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// When the time for shutting down is over session locks are released, with the connections; plain locks stay.
func TestDrainReleasesSessionLocksInTheEnd(t *testing.T) {
	server, p := startBoth(t)
	plain, session := dial(t, p.addr), dial(t, p.addr)
	token := plain.lock("job 30")
	session.lock("other 30 SESSION")
	began := time.Now()
	wait := shutdown(t, p, 700*time.Millisecond)
	if err := wait(); err == nil || time.Since(began) < 600*time.Millisecond {
		t.Errorf("Shutdown: %v after %v", err, time.Since(began))
	}
	session.closed()
	again := dial(t, startProxy(t, server.URL(), nil).addr)
	again.lock("other 30")
	again.expect("LOCK job 30", "$-1\r\n")
	again.expect(unlock("job", token), ":1\r\n")
}

// Who waits for a lock is told at once to ask elsewhere, also who begins to wait when the proxy shuts down already; who asks for a
// lock that is free is given it. go-redis takes the answer for what it is and asks again by itself.
func TestDrainSendsWaitersElsewhere(t *testing.T) {
	server, p := startBoth(t)
	other := startProxy(t, server.URL(), nil)
	holder, waiting, late := dial(t, other.addr), dial(t, p.addr), dial(t, p.addr)
	holder.lock("job 30")
	waiting.send("LOCK job 30 WAIT 0")
	addr := p.addr
	client := redis.NewClient(&redis.Options{Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
		nc, err := net.Dial("tcp", addr)
		addr = other.addr
		return nc, err
	}, PoolSize: 1, ReadTimeout: -1, DisableIdentity: true})
	defer client.Close()
	got := make(chan error, 1)
	go func() { got <- client.Do(ctx, "LOCK", "job", "30", "WAIT", "5").Err() }() // ends when holder releases, or in 5 s
	eventually(t, time.Second, "two wait", func() bool { return waiters(t, p, "job") == 2 })
	wait := shutdown(t, p, 10*time.Second)
	began := time.Now()
	if got := waiting.reply(); !strings.HasPrefix(got, "-TRYAGAIN ") || time.Since(began) > 200*time.Millisecond {
		t.Errorf("who waits is told %q after %v", got, time.Since(began))
	}
	waiting.closed()
	late.send("LOCK free 30", "LOCK job 30 WAIT 0", "UNLOCK free")
	for _, want := range []string{":", "-TRYAGAIN ", ":1\r\n"} {
		if got := late.reply(); !strings.HasPrefix(got, want) {
			t.Errorf("who asks late is told %q, want %q", got, want)
		}
	}
	late.closed()
	eventually(t, 2*time.Second, "go-redis waits elsewhere", func() bool { return waiters(t, other, "job") == 1 })
	holder.expect("UNLOCK job", ":1\r\n")
	if err := <-got; err != nil {
		t.Errorf("go-redis: %v", err)
	}
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A client that the kernel has let in is served, though the proxy has just been told to shut down.
func TestDrainServesWhoHasConnected(t *testing.T) {
	_, p := startBoth(t)
	for range 50 {
		c := dial(t, p.addr)
		c.write("PING\r\n")
	}
	last := dial(t, p.addr)
	wait := shutdown(t, p, 10*time.Second)
	last.expect("PING", "+PONG\r\n")
	last.closed()
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := net.Dial("tcp", p.addr); err == nil || os.IsTimeout(err) {
		t.Errorf("a client after the end: %v", err)
	}
}
