package lockproxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

func TestUpstreamDownAtStart(t *testing.T) {
	server := testredis.Start(t)
	server.Kill()
	p := startProxy(t, server.URL(), nil)
	c := dial(t, p.addr)
	for _, command := range []string{"GET x", "LOCK job 30", "UNLOCK job", "MULTI"} {
		c.expect(command, "-UPSTREAM cannot reach "+server.Addr()+"…")
	}
	c.send("GET x", "LOCK job 30", "PING")
	for range 3 {
		if got := c.reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("got %q", got)
		}
	}
	server.Restart()
	c.expect("GET x", "$-1\r\n")
	c.lock("job 30")
	server.Kill()
	down := dial(t, p.addr)
	down.expect("QUIT", "+OK\r\n")
	down.closed()
}

// What was sent and not answered when the upstream is lost has an unknown outcome, which is said, and never retried.
func TestUpstreamLost(t *testing.T) {
	server, p := startBoth(t, "--enable-debug-command", "yes")
	idle, busy, locking := dial(t, p.addr), dial(t, p.addr), dial(t, p.addr)
	idle.expect("PING", "+PONG\r\n")
	locking.expect("PING", "+PONG\r\n")
	locking.expect("PING", "+PONG\r\n") // there is a lane now
	busy.send("SET a 1", "BLPOP nothing 0", "SET b 1", "LOCK job 30")
	if got := busy.reply(); got != "+OK\r\n" {
		t.Fatalf("SET: %q", got)
	}
	server.Pause()
	locking.send("LOCK job 30")
	time.Sleep(50 * time.Millisecond)
	server.Kill()
	for i := range 2 { // BLPOP and SET b; LOCK has not been sent yet, or is lost too
		if got := busy.reply(); !strings.HasPrefix(got, "-UPSTREAM connection to "+server.Addr()+" was lost") {
			t.Errorf("reply %d: %q", i, got)
		}
	}
	if got := locking.reply(); !strings.HasPrefix(got, "-UPSTREAM connection to") || !strings.Contains(got, "unknown") {
		t.Errorf("LOCK: %q", got)
	}
	server.Restart()
	if dedicated {
		idle.closed()
		locking.closed()
	} else { // nothing of theirs was on the connection
		idle.expect("PING", "+PONG\r\n")
		locking.expect("PING", "+PONG\r\n")
	}
	c := dial(t, p.addr)
	c.expect("EXISTS a b", ":0\r\n")
	c.lock("job 30")
}

// An upstream that accepts and says nothing holds a client up for as long as it may take to log in, where the proxy logs in. What was
// sent to it waits, as for a Redis that stands still, until the client gives up.
func TestUpstreamThatSaysNothing(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // the kernel accepts; nobody reads
	for _, dedicated := range []bool{false, true} {
		p := startProxy(t, "redis://:secret@"+ln.Addr().String(), func(cfg *proxy.Config) {
			cfg.Dedicated, cfg.DialTimeout = dedicated, 300*time.Millisecond
		})
		for _, command := range []string{"GET a", "MULTI", "LOCK a 10", "WAIT 0 10", "INFO", "AUTH secret", "FENCE a 1 GET a"} {
			c, began := dial(t, p.addr), time.Now()
			c.expect(command, "-UPSTREAM cannot reach "+ln.Addr().String()+"…")
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("dedicated %v: %s was answered after %v", dedicated, command, took)
			}
		}
	}
	p := startProxy(t, "redis://"+ln.Addr().String(), func(cfg *proxy.Config) { cfg.DialTimeout = 100 * time.Millisecond })
	c := dial(t, p.addr)
	c.send("GET a")
	if got, err := c.tryReply(500 * time.Millisecond); got != "" || !isTimeout(err) {
		t.Errorf("GET: %q, %v", got, err)
	}
}

// A reply that was cut off can't be followed by anything.
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
	p := startProxy(t, "redis://"+ln.Addr().String(), nil)
	c := dial(t, p.addr)
	c.send("GET x", "GET y")
	c.SetReadDeadline(time.Now().Add(2 * time.Second))
	if got, err := io.ReadAll(c.in); string(got) != "$100\r\npart" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestUpstreamRestartsUnderLoad(t *testing.T) {
	server, p := startBoth(t, "--appendonly", "yes", "--appendfsync", "always")
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
				nc, err := net.Dial("tcp", p.addr)
				if err != nil {
					t.Error(err)
					return
				}
				c := &rawConn{t: t, Conn: nc, in: bufio.NewReader(nc)}
				for ; ; n++ {
					nc.Write(fmt.Appendf(nil, "SADD acked %d:%d\r\n", i, n))
					got, err := c.tryReply(5 * time.Second)
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
	stored, err := goRedis(t, server.Addr()).SCard(ctx, "acked").Result()
	if err != nil || stored < int64(acknowledged) || acknowledged == 0 {
		t.Errorf("%d writes were acknowledged, %d are there (%v)", acknowledged, stored, err)
	}
}

// buildBinary builds the command once for all tests.
var buildBinary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "lockproxy-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "lockproxy")
	out, err := exec.Command("go", "build", "-o", path, "./cmd/lockproxy").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return path, err
})

func TestMain(m *testing.M) {
	status := m.Run()
	lasting.End()
	if path, err := buildBinary(); err == nil {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(status)
}

// process is a lockproxy process.
type process struct {
	addr string
	cmd  *exec.Cmd
	log  bytes.Buffer
	exit chan error
}

// startProcess runs the built command with these arguments and waits until it accepts.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	path, err := buildBinary()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{addr: fmt.Sprintf("127.0.0.1:%d", testredis.FreePort(t)), exit: make(chan error, 1)}
	p.cmd = exec.Command(path, append([]string{"--listen", p.addr}, args...)...)
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.exit <- p.cmd.Wait() }()
	t.Cleanup(func() { p.cmd.Process.Kill() })
	eventually(t, 5*time.Second, "the process accepts", func() bool {
		nc, err := net.Dial("tcp", p.addr)
		if err == nil {
			nc.Close()
		}
		return err == nil
	})
	return p
}

// ends returns the exit status, which must come within timeout.
func (p *process) ends(t *testing.T, timeout time.Duration) int {
	t.Helper()
	select {
	case <-p.exit:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(timeout):
		t.Fatalf("the process has not ended within %v", timeout)
		return -1
	}
}

func TestEmbeddedStore(t *testing.T) {
	p := startProcess(t)
	c := dial(t, p.addr)
	first := c.lock("job 0.5")
	c.expect("LOCK job 30", "$-1\r\n")
	c.expect("SET x 1 PX 30", "+OK\r\n")
	time.Sleep(520 * time.Millisecond)
	c.expect("EXISTS x", ":0\r\n")
	second := c.lock("job 30 WAIT 4")
	if second <= first {
		t.Errorf("tokens %d, %d", first, second)
	}
	c.expect(unlock("job", second), ":1\r\n")
	p.cmd.Process.Signal(syscall.SIGTERM)
	if status := p.ends(t, 2*time.Second); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if !strings.Contains(p.log.String(), "--upstream redis://host:port") {
		t.Errorf("the log doesn't say how to name a real Redis:\n%s", p.log.String())
	}
}

func TestShutdownLetsCommandsFinish(t *testing.T) {
	server := testredis.Start(t, "--enable-debug-command", "yes")
	p := startProcess(t, "--upstream", server.URL())
	idle, busy := dial(t, p.addr), dial(t, p.addr)
	idle.expect("PING", "+PONG\r\n")
	busy.send("DEBUG SLEEP 0.4", "SET a 1", "LOCK job 30")
	time.Sleep(100 * time.Millisecond)
	p.cmd.Process.Signal(syscall.SIGTERM)
	for _, want := range []string{"+OK\r\n", "+OK\r\n", ":"} {
		if got := busy.reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	busy.expect("UNLOCK job", ":1\r\n")
	busy.closed()
	idle.closed()
	if status := p.ends(t, 2*time.Second); status != 0 {
		t.Errorf("exit status %d\n%s", status, p.log.String())
	}
}

func TestShutdownIsBounded(t *testing.T) {
	server := testredis.Start(t)
	p := startProcess(t, "--upstream", server.URL(), "--shutdown-timeout", "300ms")
	c := dial(t, p.addr)
	c.send("BLPOP nothing 0")
	time.Sleep(50 * time.Millisecond)
	p.cmd.Process.Signal(os.Interrupt)
	if status := p.ends(t, 2*time.Second); status != 0 {
		t.Errorf("exit status %d", status)
	}
	p = startProcess(t, "--upstream", server.URL(), "--shutdown-timeout", "60s")
	c = dial(t, p.addr)
	c.send("BLPOP nothing 0")
	time.Sleep(50 * time.Millisecond)
	p.cmd.Process.Signal(syscall.SIGTERM)
	time.Sleep(100 * time.Millisecond)
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.ends(t, 2*time.Second)
	eventually(t, time.Second, "no client is left upstream", func() bool {
		list := goRedis(t, server.Addr()).ClientList(ctx).Val()
		return !strings.Contains(list, "cmd=blpop")
	})
}

// A connection of the proxy's own is lost on which the upstream sends a line without end, and takes no
// memory by it. A script's status and error replies to clients are lines of any length.
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
	server, usual := startBoth(t)
	long := `return redis.status_reply(string.rep("x", 3000000))`
	if got, err := goRedis(t, usual.addr).Eval(ctx, long, nil).Text(); len(got) != 3000000 {
		t.Errorf("a long status: %d bytes, %v; from %s", len(got), err, server.Addr())
	}
	p := startProxy(t, "redis://"+ln.Addr().String(), nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	err = p.server.Ready(ctx)
	if err == nil || !strings.Contains(err.Error(), "a line longer than 1048576 bytes") {
		t.Errorf("ready: %v", err)
	}
	runtime.ReadMemStats(&after)
	if used := int64(after.TotalAlloc - before.TotalAlloc); used > 64<<20 {
		t.Errorf("%d MB were allocated", used>>20)
	}
	c := dial(t, p.addr)
	c.expect("LOCK job 30", "-UPSTREAM …") // held up to 64 MB: FENCE passes on what a client's script says
}
