package relay_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// The kernel holds a client's last answer back until the end of its connection comes, but for no
// longer than 200 ms. A machine that stops for that long spoils a round of the tests below.
// There are few rounds: a proxy that does without that would be lucky in one of many.
const drainRounds = 2

// A client that sends one command after another gets the end of its connection together with a
// reply, before it can send the next command. One that sends it nevertheless is only closed: its
// command has not run.
func TestDrainEndsWithTheAnswer(t *testing.T) {
	server := testredis.Start(t)
	direct := proxytest.Dial(t, server.Addr())
	direct.Expect("SET large "+strings.Repeat("x", 20000), "+OK\r\n")
	for round := 0; ; round++ {
		late := drainClients(t, server, direct)
		if late == 0 || t.Failed() {
			return
		}
		if round == drainRounds {
			t.Fatalf("in each round clients had their answer, and an open connection: %d in the last",
				late)
		}
	}
}

// drainClients shuts a proxy down while 300 clients send one command after another, and returns how
// many found their connection open behind their last answer.
func drainClients(t *testing.T, server *testredis.Server, direct *proxytest.Conn) int64 {
	p := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.DialTimeout = testwait.Patience })
	direct.Expect("SET n 0", "+OK\r\n")
	const clients = 300
	var ready, done sync.WaitGroup
	var late, counted atomic.Int64
	ready.Add(clients)
	begun := make(chan struct{})
	for i := range clients {
		c := proxytest.Dial(t, p.Addr)
		done.Go(func() {
			defer c.Close()
			ask := func() bool {
				command, want := "PING", "+PONG\r\n"
				switch i % 4 {
				case 1:
					command, want = "GET large", "$20000\r\n"+strings.Repeat("x", 20000)+"\r\n"
				case 2:
					command, want = "BLPOP nothing 0.01", "*-1\r\n"
				case 3:
					command, want = "INCR n", ":…"
				}
				if _, err := c.Write([]byte(command + "\r\n")); err != nil {
					return false
				}
				got, err := c.TryReply()
				if got == "" && err != nil {
					return false
				}
				if prefix, open := strings.CutSuffix(want, "…"); err != nil || got != want &&
					!(open && strings.HasPrefix(got, prefix)) {
					t.Errorf("client %d: %.20q, %v", i, got, err)
				}
				if i%4 == 3 {
					counted.Add(1)
				}
				return true
			}
			if !ask() {
				t.Errorf("client %d is closed before the shutdown", i)
			}
			ready.Done()
			<-begun
			for !proxytest.KnowsEnd(t, c.Conn) {
				if !ask() { // the machine has stopped between the answer and the end
					late.Add(1)
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
	direct.Expect("GET n", wire.Bulk(fmt.Sprint(counted.Load())))
	return late.Load()
}

// With TLS, too, the close notification comes with the reply: a client that asks is closed while
// others, which ask nothing, keep their connections.
func TestDrainEndsWithTheAnswerOverTLS(t *testing.T) {
	server := testredis.Start(t)
	for round := 0; ; round++ {
		p, trusting := startTLS(t, server.URL(), nil)
		idle := dialTLS(t, p.Addr, trusting)
		idle.Expect("PING", "+PONG\r\n")
		var clients []*proxytest.Conn
		for range 10 {
			c := dialTLS(t, p.Addr, trusting)
			c.Expect("PING", "+PONG\r\n")
			clients = append(clients, c)
		}
		wait := proxytest.Shutdown(proxytest.Ctx, t, p)
		for i, c := range clients {
			c.Send("PING")
			if got, err := c.TryReply(); got != "+PONG\r\n" && (got != "" || err != io.EOF) {
				t.Errorf("client %d: %q, %v", i, got, err)
			}
			if got, err := c.TryReply(); got != "" || err != io.EOF {
				t.Errorf("client %d is told %q, %v after its answer", i, got, err)
			}
		}
		first := !idle.Arrived()
		idle.Closed()
		if err := wait(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if first || t.Failed() {
			return
		}
		if round == drainRounds {
			t.Fatal("clients that ask are closed no sooner than others")
		}
	}
}

// A pipeline is answered whole, and a request that has begun to arrive is completed.
func TestDrainAnswersAllThatWasSent(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.Dial(t, server.Addr())
	burst, partial, slow := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	for _, c := range []*proxytest.Conn{burst, partial, slow} {
		c.Expect("PING", "+PONG\r\n")
	}
	// A client that sends nothing is closed in the end: those that have begun to are not.
	burst.WriteRaw("*2\r\n$4\r\nINCR\r\n")
	partial.WriteRaw("*2\r\n$4\r\nECHO\r\n$5\r\nhe")
	slow.Send("BLPOP list 0", "ECHO behind")
	testwait.Until(t, "BLPOP blocks", func() bool {
		return strings.Contains(direct.Do("INFO clients"), "blocked_clients:1\r\n")
	})
	idle := proxytest.Dial(t, p.Addr)
	idle.Expect("PING", "+PONG\r\n")
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	idle.Closed()
	burst.WriteRaw("$1\r\nn\r\n" + strings.Repeat("INCR n\r\n", 999))
	for i := range 1000 {
		if got := burst.Reply(); got[0] != ':' {
			t.Fatalf("answer %d: %q", i, got)
		}
	}
	burst.Closed()
	partial.WriteRaw("llo\r\n")
	if got := partial.Reply(); got != "$5\r\nhello\r\n" {
		t.Errorf("a request in two parts: %q", got)
	}
	partial.Closed()
	direct.Expect("RPUSH list x", ":1\r\n")
	for _, want := range []string{"*2\r\n$4\r\nlist\r\n$1\r\nx\r\n", "$6\r\nbehind\r\n"} {
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
	dial := func() *proxytest.Conn { return proxytest.Dial(t, p.Addr) }
	trade, watch, plain, session, idle := dial(), dial(), dial(), dial(), dial()
	idle.Expect("PING", "+PONG\r\n")
	trade.Expect("MULTI", "+OK\r\n")
	trade.Expect("INCR n", "+QUEUED\r\n")
	watch.Expect("WATCH n", "+OK\r\n")
	plain.Lock("job 600")
	session.Lock("other 600 SESSION")
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	idle.Closed()
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
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// When the time for shutting down is over, session locks are
// released and connections closed; other locks stay.
func TestDrainReleasesSessionLocksInTheEnd(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	plain, session := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := plain.Lock("job 600")
	session.Lock("other 600 SESSION")
	ctx, over := context.WithCancel(proxytest.Ctx)
	wait := proxytest.Shutdown(ctx, t, p)
	over()
	if err := wait(); err == nil {
		t.Error("Shutdown: clients were left, and there is no error")
	}
	session.Closed()
	again := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
	again.Lock("other 600")
	again.Expect("LOCK job 600", "$-1\r\n")
	again.Expect(proxytest.Unlock("job", token), ":1\r\n")
}

// A shutdown for which there is no time cuts nobody off where nobody is.
func TestDrainOfNobody(t *testing.T) {
	_, p := proxytest.StartBoth(t)
	ctx, over := context.WithCancel(proxytest.Ctx)
	over()
	if err := p.Server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A waiting client is told at once to ask elsewhere, and so is one that asks for a held lock during
// the drain. A free lock is still given. go-redis repeats the request elsewhere by itself.
func TestDrainSendsWaitersElsewhere(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	other := proxytest.Start(t, server.URL(), nil)
	holder, waiting, late := proxytest.Dial(t, other.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	holder.Lock("job 600")
	waiting.Send("LOCK job 600 WAIT 0")
	testwait.Connected(t, late)
	late.WriteRaw("LOCK free") // who has begun a request is not idle
	addr := p.Addr
	client := redis.NewClient(testredis.Patient(&redis.Options{
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			nc, err := proxytest.TryDial(addr)
			addr = other.Addr
			return nc, err
		},
		PoolSize: 1, ReadTimeout: -1, DisableIdentity: true,
	}))
	defer client.Close()
	got := make(chan error, 1)
	// ends when holder releases
	go func() { got <- client.Do(proxytest.Ctx, "LOCK", "job", "600", "WAIT", "0").Err() }()
	proxytest.AwaitWaiters(t, p, "job", 2)
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	if got := waiting.Reply(); !strings.HasPrefix(got, "-TRYAGAIN ") {
		t.Errorf("the waiter is told %q", got)
	}
	waiting.Closed()
	late.WriteRaw(" 600\r\nLOCK job 600 WAIT 0\r\nUNLOCK free\r\n")
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
	testwait.Connected(t, last)
	last.WriteRaw("PI") // who has begun a request is not idle
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	last.WriteRaw("NG\r\n")
	last.WantReply("+PONG\r\n")
	last.Closed()
	if err := wait(); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if _, err := proxytest.TryDial(p.Addr); err == nil || os.IsTimeout(err) {
		t.Errorf("a client after the end: %v", err)
	}
}
