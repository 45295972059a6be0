package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

func TestUpstreamDownAtStart(t *testing.T) {
	server := testredis.Start(t)
	server.Kill()
	p := proxytest.Start(t, server.URL(), nil)
	c := proxytest.Dial(t, p.Addr)
	for _, command := range []string{"GET x", "LOCK job 600", "UNLOCK job", "MULTI"} {
		c.Expect(command, "-UPSTREAM cannot reach "+p.Upstream+"…")
	}
	c.Send("GET x", "LOCK job 600", "PING")
	for range 3 {
		if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("got %q", got)
		}
	}
	server.Restart()
	c.Expect("GET x", "$-1\r\n")
	c.Lock("job 600")
	server.Kill()
	down := proxytest.Dial(t, p.Addr)
	down.Expect("QUIT", "+OK\r\n")
	down.Closed()
}

// The outcome of requests in flight when the upstream is lost is unknown: the client is told so,
// and the proxy never retries them.
func TestUpstreamLost(t *testing.T) {
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.Start(t, "redis://"+link.Addr(), nil)
	idle, busy, locking := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	idle.Expect("PING", "+PONG\r\n")
	locking.Expect("PING", "+PONG\r\n")
	locking.Expect("PING", "+PONG\r\n") // there is a lane now
	busy.Send("SET a 1", "BLPOP nothing 0", "SET b 1", "LOCK job 600")
	if got := busy.Reply(); got != "+OK\r\n" {
		t.Fatalf("SET: %q", got)
	}
	direct := proxytest.Dial(t, server.Addr())
	testwait.Until(t, "BLPOP blocks", func() bool {
		return strings.Contains(direct.Do("INFO clients"), "blocked_clients:1\r\n")
	})
	link.Hold()
	locking.Send("LOCK job 600")
	testwait.Until(t, "LOCK is on its way", link.Holding)
	server.Kill()
	link.Cut()
	link.Release()
	for i := range 2 { // BLPOP and SET b; LOCK has not been sent yet, or is lost too
		if got := busy.Reply(); !strings.HasPrefix(got, "-UPSTREAM connection to "+p.Upstream+
			" was lost") {
			t.Errorf("reply %d: %q", i, got)
		}
	}
	if got := locking.Reply(); !strings.HasPrefix(got, "-UPSTREAM connection to") ||
		!strings.Contains(got, "unknown") {
		t.Errorf("LOCK: %q", got)
	}
	server.Restart()
	idle.Expect("PING", "+PONG\r\n") // no request of theirs was on the connection
	locking.Expect("PING", "+PONG\r\n")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("EXISTS a b", ":0\r\n")
	c.Lock("job 600")
}

// An upstream that accepts and says nothing delays a client for as long
// as the proxy's login can take, if there is one. Requests sent to it
// wait, as for a Redis that hangs, until the client gives up.
func TestUpstreamThatSaysNothing(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // the kernel accepts; no process reads
	for _, dedicated := range []bool{false, true} {
		p := proxytest.Start(t, "redis://:secret@"+ln.Addr().String(), func(cfg *proxy.Config) {
			cfg.Dedicated, cfg.DialTimeout = dedicated, 100*time.Millisecond
		})
		for _, command := range []string{"GET a", "MULTI", "LOCK a 600", "WAIT 0 10", "INFO",
			"AUTH secret", "FENCE a 1 GET a"} {
			proxytest.Dial(t, p.Addr).Expect(command,
				"-UPSTREAM cannot reach "+ln.Addr().String()+"…")
		}
	}
	// Without a login a client waits: another one, whose lock command has a bound, is told
	// meanwhile.
	p := proxytest.Start(t, "redis://"+ln.Addr().String(), func(cfg *proxy.Config) {
		cfg.DialTimeout = 100 * time.Millisecond
	})
	c := proxytest.Dial(t, p.Addr)
	c.Send("GET a")
	proxytest.Dial(t, p.Addr).Expect("LOCK a 600 WAIT 0.01", "-UPSTREAM…")
	if c.Arrived() {
		t.Errorf("GET: %q", c.Reply())
	}
}

// Nothing can follow a reply that was cut off.
func TestUpstreamLostWithinAReply(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		nc, err := ln.Accept()
		if err != nil {
			return
		}
		nc.Read(make([]byte, 100))
		nc.Write([]byte("$100\r\npart"))
		nc.Close()
	}()
	p := proxytest.Start(t, "redis://"+ln.Addr().String(), func(cfg *proxy.Config) {
		cfg.Dedicated = true
	})
	c := proxytest.Dial(t, p.Addr)
	c.Send("GET x", "GET y")
	c.SetReadDeadline(testwait.Deadline())
	if got, err := io.ReadAll(c.In); string(got) != "$100\r\npart" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestUpstreamRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t, "--appendonly", "yes", "--appendfsync", "always")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var acknowledged atomic.Int64
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				nc, err := proxytest.TryDial(p.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				c := &proxytest.Conn{T: t, Conn: nc, In: bufio.NewReader(nc)}
				for ; ; n++ {
					nc.Write(fmt.Appendf(nil, "SADD acked %d:%d\r\n", i, n))
					got, err := c.TryReply()
					if err != nil || strings.HasPrefix(got, "-") {
						break
					}
					acknowledged.Add(1)
					select {
					case <-stop:
						nc.Close()
						return
					default:
					}
				}
				nc.Close()
			}
		})
	}
	more := func() {
		had := acknowledged.Load()
		testwait.Until(t, "writes are acknowledged", func() bool {
			return acknowledged.Load() >= had+100
		})
	}
	for range 3 {
		more()
		server.Restart()
	}
	more()
	close(stop)
	wg.Wait()
	stored, err := proxytest.GoRedis(t, server.Addr()).SCard(proxytest.Ctx, "acked").Result()
	if err != nil || stored < acknowledged.Load() {
		t.Errorf("%d writes were acknowledged, %d are there (%v)", acknowledged.Load(), stored, err)
	}
}

func TestEmbeddedStore(t *testing.T) {
	t.Parallel()
	p := proxytest.StartProcess(t)
	c := proxytest.Dial(t, p.Addr)
	first := c.Lock("job 600")
	c.Expect("LOCK job 600", "$-1\r\n")
	c.Expect("SET x 1 PX 30", "+OK\r\n")
	testwait.Until(t, "x expires", func() bool { return c.Do("EXISTS x") == ":0\r\n" })
	c.Expect("PEXPIRE job 1", ":1\r\n")
	second := c.Lock("job 600 WAIT 0")
	if second <= first {
		t.Errorf("tokens %d, %d", first, second)
	}
	c.Expect(proxytest.Unlock("job", second), ":1\r\n")

	line := proxytest.Dial(t, p.Addr) // as typed in telnet
	line.WriteRaw("MULTI\r\nSET s 'a b'\r\nEXEC\r\nGET s\r\n")
	for _, want := range []string{"+OK\r\n", "+QUEUED\r\n", "*1\r\n+OK\r\n", "$3\r\na b\r\n"} {
		line.WantReply(want)
	}
	line.WriteRaw("INFO lockproxy\r\n")
	if got := line.Reply(); !strings.Contains(got, "# Lockproxy\r\n") {
		t.Errorf("INFO lockproxy, typed: %q", got)
	}

	p.Cmd.Process.Signal(syscall.SIGTERM)
	if status := p.Ends(t); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if !strings.Contains(p.Log.String(), "--upstream redis://host:port") {
		t.Errorf("the log doesn't say how to name a real Redis:\n%s", p.Log.String())
	}
}

func TestShutdownLetsCommandsFinish(t *testing.T) {
	link := testredis.StartLink(t, testredis.Start(t).Addr())
	p := proxytest.StartProcess(t, "--upstream", "redis://"+link.Addr())
	idle, busy := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	idle.Expect("PING", "+PONG\r\n")
	link.Hold()
	busy.Send("SET a 1", "LOCK job 600")
	testwait.Until(t, "they are on their way", link.Holding)
	p.Cmd.Process.Signal(syscall.SIGTERM)
	awaitRefusal(t, p.Addr)
	link.Release()
	for _, want := range []string{"+OK\r\n", ":"} {
		if got := busy.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	busy.Expect("UNLOCK job", ":1\r\n")
	busy.Closed()
	idle.Closed()
	if status := p.Ends(t); status != 0 {
		t.Errorf("exit status %d\n%s", status, p.Log.String())
	}
}

// awaitRefusal returns when the proxy at addr accepts no clients any more.
func awaitRefusal(t *testing.T, addr string) {
	t.Helper()
	testwait.Until(t, "it has begun to stop", func() bool {
		nc, err := proxytest.TryDial(addr)
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
}

func TestShutdownIsBounded(t *testing.T) {
	server := testredis.Start(t)
	direct := proxytest.Dial(t, server.Addr())
	blocked := func(n string) {
		testwait.Until(t, "so many are blocked", func() bool {
			return strings.Contains(direct.Do("INFO clients"), "blocked_clients:"+n+"\r\n")
		})
	}
	p := proxytest.StartProcess(t, "--upstream", server.URL(), "--shutdown-timeout", "300ms")
	c := proxytest.Dial(t, p.Addr)
	c.Send("BLPOP nothing 0")
	blocked("1")
	p.Cmd.Process.Signal(os.Interrupt)
	if status := p.Ends(t); status != 0 {
		t.Errorf("exit status %d", status)
	}
	blocked("0")
	p = proxytest.StartProcess(t, "--upstream", server.URL(), "--shutdown-timeout", "1h")
	c = proxytest.Dial(t, p.Addr)
	c.Send("BLPOP nothing 0")
	blocked("1")
	p.Cmd.Process.Signal(syscall.SIGTERM)
	awaitRefusal(t, p.Addr)
	p.Cmd.Process.Signal(syscall.SIGTERM) // two that come together would be one
	p.Ends(t)
	blocked("0")
}
