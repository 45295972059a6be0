package lockproxy_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
	"lockproxy/proxy"
)

// testProxy is a proxy in this process, on a loopback port of its own.
type testProxy struct {
	addr   string
	server *proxy.Server
	shares bool // its clients use lanes
}

// testProxies are those that were started, by address.
var testProxies sync.Map

// dedicated is whether the proxies under test give every client an upstream connection of its own.
var dedicated = os.Getenv("LOCKPROXY_TEST_UPSTREAM_MODE") == "dedicated"

// startProxy serves in front of the Redis at url until the test ends. change may be nil.
func startProxy(t testing.TB, url string, change func(*proxy.Config)) *testProxy {
	t.Helper()
	return startProxyAt(t, "127.0.0.1:0", url, change)
}

// startProxyAt is startProxy at an address of this machine.
func startProxyAt(t testing.TB, at, url string, change func(*proxy.Config)) *testProxy {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	return startProxyOn(t, ln, url, change)
}

// startProxyOn is startProxy for clients of a listener of the test's own.
func startProxyOn(t testing.TB, ln net.Listener, url string, change func(*proxy.Config)) *testProxy {
	t.Helper()
	upstream, err := passthrough.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg := proxy.Config{
		Upstream: upstream,
		Locks:    lockcmd.Config{MaxTimeout: 24 * time.Hour, FenceRetention: 10 * time.Minute},
		Logger:   hclog.NewNullLogger(),
		// The same tests run in both modes: see the Makefile.
		Dedicated: dedicated,
	}
	if change != nil {
		change(&cfg)
	}
	p := &testProxy{addr: ln.Addr().String(), server: proxy.New(cfg), shares: !cfg.Dedicated}
	testProxies.Store(p.addr, p)
	served := make(chan error, 1)
	go func() { served <- p.server.Serve(ln) }()
	t.Cleanup(func() {
		p.server.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return p
}

// startBoth starts a redis-server and a proxy in front of it.
func startBoth(t testing.TB, redisArgs ...string) (*testredis.Server, *testProxy) {
	t.Helper()
	server := testredis.Start(t, redisArgs...)
	return server, startProxy(t, server.URL(), nil)
}

func goRedis(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 200, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

var ctx = context.Background()

// rawConn is a client that shows every byte.
type rawConn struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func dial(t testing.TB, addr string) *rawConn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return dialed(t, nc)
}

func dialed(t testing.TB, nc net.Conn) *rawConn {
	return &rawConn{t: t, Conn: nc, in: bufio.NewReader(nc)}
}

// send writes commands given as words separated by blanks, in one write.
func (c *rawConn) send(commands ...string) {
	c.t.Helper()
	var out []byte
	for _, command := range commands {
		out = resp.AppendCommand(out, strings.Fields(command)...)
	}
	c.write(string(out))
}

func (c *rawConn) write(raw string) {
	c.t.Helper()
	if _, err := c.Write([]byte(raw)); err != nil {
		c.t.Fatalf("write: %v", err)
	}
}

// reply reads one whole reply, raw.
func (c *rawConn) reply() string {
	c.t.Helper()
	raw, err := c.tryReply(5 * time.Second)
	if err != nil {
		c.t.Fatalf("no reply: %v (have %q)", err, raw)
	}
	return raw
}

func (c *rawConn) tryReply(timeout time.Duration) (string, error) {
	c.SetReadDeadline(time.Now().Add(timeout))
	var scan resp.Scanner
	var raw bytes.Buffer
	for {
		b, err := c.in.ReadByte()
		if err != nil {
			return raw.String(), err
		}
		raw.WriteByte(b)
		if _, done, err := scan.Scan([]byte{b}); done || err != nil {
			return raw.String(), err
		}
	}
}

// do sends one command and returns its raw reply.
func (c *rawConn) do(command string) string {
	c.t.Helper()
	c.send(command)
	return c.reply()
}

// expect sends one command and fails unless its raw reply is want; "…" at the end of want stands for anything.
func (c *rawConn) expect(command, want string) {
	c.t.Helper()
	got := c.do(command)
	if prefix, open := strings.CutSuffix(want, "…"); got != want && !(open && strings.HasPrefix(got, prefix)) {
		c.t.Errorf("%s: got %q, want %q", command, got, want)
	}
}

// lock takes a lock and returns its token.
func (c *rawConn) lock(args string) int64 {
	c.t.Helper()
	got := c.do("LOCK " + args)
	token, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(got, ":"), "\r\n"), 10, 64)
	if err != nil || token <= 0 || token >= 1<<53 {
		c.t.Fatalf("LOCK %s: got %q, want a token", args, got)
	}
	return token
}

// closed fails unless the server closes the connection, with nothing more to read, within a second.
func (c *rawConn) closed() {
	c.t.Helper()
	if got, err := c.tryReply(time.Second); err == nil || got != "" || isTimeout(err) {
		c.t.Errorf("want a closed connection, got %q, %v", got, err)
	}
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// eventually waits until ok holds, no longer than timeout.
func eventually(t testing.TB, timeout time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}

func unlock(key string, token int64) string { return fmt.Sprintf("UNLOCK %s %d", key, token) }
