package relay_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
	"lockproxy/proxy"
)

func TestUpstreamDownAtStart(t *testing.T) {
	server := testredis.Start(t)
	server.Kill()
	p := proxytest.Start(t, server.URL(), nil)
	c := proxytest.Dial(t, p.Addr)
	for _, command := range []string{"GET x", "LOCK job 30", "UNLOCK job", "MULTI"} {
		c.Expect(command, "-UPSTREAM cannot reach "+server.Addr()+"…")
	}
	c.Send("GET x", "LOCK job 30", "PING")
	for range 3 {
		if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("got %q", got)
		}
	}
	server.Restart()
	c.Expect("GET x", "$-1\r\n")
	c.Lock("job 30")
	server.Kill()
	down := proxytest.Dial(t, p.Addr)
	down.Expect("QUIT", "+OK\r\n")
	down.Closed()
}

// The outcome of requests in flight when the upstream is lost is unknown: the client is told so,
// and the proxy never retries them.
func TestUpstreamLost(t *testing.T) {
	server, p := proxytest.StartBoth(t, "--enable-debug-command", "yes")
	idle, busy, locking := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	idle.Expect("PING", "+PONG\r\n")
	locking.Expect("PING", "+PONG\r\n")
	locking.Expect("PING", "+PONG\r\n") // there is a lane now
	busy.Send("SET a 1", "BLPOP nothing 0", "SET b 1", "LOCK job 30")
	if got := busy.Reply(); got != "+OK\r\n" {
		t.Fatalf("SET: %q", got)
	}
	server.Pause()
	locking.Send("LOCK job 30")
	time.Sleep(50 * time.Millisecond)
	server.Kill()
	for i := range 2 { // BLPOP and SET b; LOCK has not been sent yet, or is lost too
		if got := busy.Reply(); !strings.HasPrefix(got, "-UPSTREAM connection to "+server.Addr()+
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
	c.Lock("job 30")
}

// An upstream that accepts and says nothing delays a client for as long
// as the proxy's login can take, if there is one. Requests sent to it
// wait, as for a Redis that stands still, until the client gives up.
func TestUpstreamThatSaysNothing(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // the kernel accepts; no process reads
	for _, dedicated := range []bool{false, true} {
		p := proxytest.Start(t, "redis://:secret@"+ln.Addr().String(), func(cfg *proxy.Config) {
			cfg.Dedicated, cfg.DialTimeout = dedicated, 300*time.Millisecond
		})
		for _, command := range []string{"GET a", "MULTI", "LOCK a 10", "WAIT 0 10", "INFO",
			"AUTH secret", "FENCE a 1 GET a"} {
			c, began := proxytest.Dial(t, p.Addr), time.Now()
			c.Expect(command, "-UPSTREAM cannot reach "+ln.Addr().String()+"…")
			if took := time.Since(began); took > 3*time.Second+proxytest.Late() {
				t.Errorf("dedicated %v: %s was answered after %v", dedicated, command, took)
			}
		}
	}
	p := proxytest.Start(t, "redis://"+ln.Addr().String(), func(cfg *proxy.Config) {
		cfg.DialTimeout = 100 * time.Millisecond
	})
	c := proxytest.Dial(t, p.Addr)
	c.Send("GET a")
	time.Sleep(500 * time.Millisecond)
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
	p := proxytest.Start(t, "redis://"+ln.Addr().String(), nil)
	c := proxytest.Dial(t, p.Addr)
	c.Send("GET x", "GET y")
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	if got, err := io.ReadAll(c.In); string(got) != "$100\r\npart" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestUpstreamRestartsUnderLoad(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t, "--appendonly", "yes", "--appendfsync", "always")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	acknowledged := 0
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				nc, err := net.Dial("tcp", p.Addr)
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
					mu.Lock()
					acknowledged++
					mu.Unlock()
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
	for range 3 {
		time.Sleep(300 * time.Millisecond)
		server.Restart()
	}
	time.Sleep(300 * time.Millisecond)
	close(stop)
	wg.Wait()
	stored, err := proxytest.GoRedis(t, server.Addr()).SCard(proxytest.Ctx, "acked").Result()
	if err != nil || stored < int64(acknowledged) || acknowledged == 0 {
		t.Errorf("%d writes were acknowledged, %d are there (%v)", acknowledged, stored, err)
	}
}

func TestEmbeddedStore(t *testing.T) {
	t.Parallel()
	p := proxytest.StartProcess(t)
	c := proxytest.Dial(t, p.Addr)
	first := c.Lock("job 2")
	c.Expect("LOCK job 30", "$-1\r\n")
	c.Expect("SET x 1 PX 30", "+OK\r\n")
	time.Sleep(2020 * time.Millisecond)
	c.Expect("EXISTS x", ":0\r\n")
	second := c.Lock("job 30 WAIT 4")
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
	server := testredis.Start(t, "--enable-debug-command", "yes")
	p := proxytest.StartProcess(t, "--upstream", server.URL())
	idle, busy := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	idle.Expect("PING", "+PONG\r\n")
	busy.Send("DEBUG SLEEP 0.4", "SET a 1", "LOCK job 30")
	time.Sleep(100 * time.Millisecond)
	p.Cmd.Process.Signal(syscall.SIGTERM)
	for _, want := range []string{"+OK\r\n", "+OK\r\n", ":"} {
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

func TestShutdownIsBounded(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.StartProcess(t, "--upstream", server.URL(), "--shutdown-timeout", "300ms")
	c := proxytest.Dial(t, p.Addr)
	c.Send("BLPOP nothing 0")
	time.Sleep(50 * time.Millisecond)
	p.Cmd.Process.Signal(os.Interrupt)
	if status := p.Ends(t); status != 0 {
		t.Errorf("exit status %d", status)
	}
	p = proxytest.StartProcess(t, "--upstream", server.URL(), "--shutdown-timeout", "60s")
	c = proxytest.Dial(t, p.Addr)
	c.Send("BLPOP nothing 0")
	time.Sleep(50 * time.Millisecond)
	p.Cmd.Process.Signal(syscall.SIGTERM)
	testwait.Until(t, "it has begun to stop", func() bool {
		nc, err := net.Dial("tcp", p.Addr)
		if err == nil {
			nc.Close()
		}
		return err != nil
	})
	p.Cmd.Process.Signal(syscall.SIGTERM) // two that come together would be one
	p.Ends(t)
	testwait.Until(t, "no client is left upstream", func() bool {
		list := proxytest.GoRedis(t, server.Addr()).ClientList(proxytest.Ctx).Val()
		return !strings.Contains(list, "cmd=blpop")
	})
}

// On one of the proxy's own connections, an endless line of the upstream ends the connection and
// takes no memory. Status and error replies of scripts to clients are lines of any length.
func TestEndlessLineOfTheUpstream(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	endless := bytes.Repeat([]byte("x"), 64<<10)
	serving.Go(func() { // ends when the listener is closed
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { // ends when the proxy closes, or after 512 MB
				defer nc.Close()
				nc.Read(make([]byte, 4096)) // a request
				nc.Write([]byte("+"))
				for range 8192 {
					if _, err := nc.Write(endless); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { ln.Close() })
	server, usual := proxytest.StartBoth(t)
	long := `return redis.status_reply(string.rep("x", 3000000))`
	got, err := proxytest.GoRedis(t, usual.Addr).Eval(proxytest.Ctx, long, nil).Text()
	if len(got) != 3000000 {
		t.Errorf("a long status: %d bytes, %v; from %s", len(got), err, server.Addr())
	}
	p := proxytest.Start(t, "redis://"+ln.Addr().String(), nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = p.Server.Ready(proxytest.Ctx)
	if err == nil || !strings.Contains(err.Error(), "a line longer than 1048576 bytes") {
		t.Errorf("ready: %v", err)
	}
	runtime.ReadMemStats(&after)
	if used := int64(after.TotalAlloc - before.TotalAlloc); used > 64<<20 {
		t.Errorf("%d MB were allocated", used>>20)
	}
	c := proxytest.Dial(t, p.Addr)
	c.Send("LOCK job 30")
	// The reply can have 64 MB, since FENCE relays a reply of
	// the client's script: that takes seconds.
	if got, err := c.TryReply(); !strings.HasPrefix(got, "-UPSTREAM ") {
		t.Errorf("LOCK: %q, %v", got, err)
	}
}
