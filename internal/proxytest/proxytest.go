package proxytest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"lockproxy/internal/resp"
	"lockproxy/internal/testredis"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
	"lockproxy/proxy"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
)

// Shutdown begins to shut a proxy down, within a time, and returns what waits for the end of that.
func Shutdown(t *testing.T, p *Proxy, within time.Duration) (wait func() error) {
	t.Helper()
	bounded, cancel := context.WithTimeout(Ctx, within)
	ended := make(chan error, 1)
	go func() { ended <- p.Server.Shutdown(bounded) }() // ends within the time
	Eventually(t, time.Second, "it drains", func() bool { return p.Server.Stats().Draining })
	return func() error {
		defer cancel()
		return <-ended
	}
}

// KnowsEnd reports whether the kernel has told a client already that its connection has ended, once it has read all.
func KnowsEnd(t *testing.T, nc net.Conn) bool {
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

// Proxy is a proxy in this process, on a loopback port of its own.
type Proxy struct {
	Addr   string
	Server *proxy.Server
	Shares bool // its clients use lanes
}

// testProxies are those that were started, by address.
var testProxies sync.Map

// Dedicated is whether the proxies under test give every client an upstream connection of its own.
var Dedicated = os.Getenv("LOCKPROXY_TEST_UPSTREAM_MODE") == "dedicated"

// Start serves in front of the Redis at url until the test ends. change may be nil.
func Start(t testing.TB, url string, change func(*proxy.Config)) *Proxy {
	t.Helper()
	return StartAt(t, "127.0.0.1:0", url, change)
}

// StartAt is startProxy at an address of this machine.
func StartAt(t testing.TB, at, url string, change func(*proxy.Config)) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	return StartOn(t, ln, url, change)
}

// StartOn is startProxy for clients of a listener of the test's own.
func StartOn(t testing.TB, ln net.Listener, url string, change func(*proxy.Config)) *Proxy {
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
		Dedicated: Dedicated,
	}
	if change != nil {
		change(&cfg)
	}
	p := &Proxy{Addr: ln.Addr().String(), Server: proxy.New(cfg), Shares: !cfg.Dedicated}
	testProxies.Store(p.Addr, p)
	served := make(chan error, 1)
	go func() { served <- p.Server.Serve(ln) }()
	t.Cleanup(func() {
		p.Server.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return p
}

// StartBoth starts a redis-server and a proxy in front of it.
func StartBoth(t testing.TB, redisArgs ...string) (*testredis.Server, *Proxy) {
	t.Helper()
	server := testredis.Start(t, redisArgs...)
	return server, Start(t, server.URL(), nil)
}

func GoRedis(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 200, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

var Ctx = context.Background()

// Conn is a client that shows every byte.
type Conn struct {
	T testing.TB
	net.Conn
	In *bufio.Reader
}

func Dial(t testing.TB, addr string) *Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return Dialed(t, nc)
}

func Dialed(t testing.TB, nc net.Conn) *Conn {
	return &Conn{T: t, Conn: nc, In: bufio.NewReader(nc)}
}

// Send writes commands given as words separated by blanks, in one write.
func (c *Conn) Send(commands ...string) {
	c.T.Helper()
	var out []byte
	for _, command := range commands {
		out = resp.AppendCommand(out, strings.Fields(command)...)
	}
	c.WriteRaw(string(out))
}

func (c *Conn) WriteRaw(raw string) {
	c.T.Helper()
	if _, err := c.Write([]byte(raw)); err != nil {
		c.T.Fatalf("write: %v", err)
	}
}

// Reply reads one whole reply, raw.
func (c *Conn) Reply() string {
	c.T.Helper()
	raw, err := c.TryReply(5 * time.Second)
	if err != nil {
		c.T.Fatalf("no reply: %v (have %q)", err, raw)
	}
	return raw
}

func (c *Conn) TryReply(timeout time.Duration) (string, error) {
	c.SetReadDeadline(time.Now().Add(timeout))
	var scan resp.Scanner
	var raw bytes.Buffer
	for {
		b, err := c.In.ReadByte()
		if err != nil {
			return raw.String(), err
		}
		raw.WriteByte(b)
		if _, done, err := scan.Scan([]byte{b}); done || err != nil {
			return raw.String(), err
		}
	}
}

// Do sends one command and returns its raw reply.
func (c *Conn) Do(command string) string {
	c.T.Helper()
	c.Send(command)
	return c.Reply()
}

// Expect sends one command and fails unless its raw reply is want; "…" at the end of want stands for anything.
func (c *Conn) Expect(command, want string) {
	c.T.Helper()
	got := c.Do(command)
	if prefix, open := strings.CutSuffix(want, "…"); got != want && !(open && strings.HasPrefix(got, prefix)) {
		c.T.Errorf("%s: got %q, want %q", command, got, want)
	}
}

// Lock takes a lock and returns its token.
func (c *Conn) Lock(args string) int64 {
	c.T.Helper()
	got := c.Do("LOCK " + args)
	token, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(got, ":"), "\r\n"), 10, 64)
	if err != nil || token <= 0 || token >= 1<<53 {
		c.T.Fatalf("LOCK %s: got %q, want a token", args, got)
	}
	return token
}

// Closed fails unless the server closes the connection, with nothing more to read, within a second.
func (c *Conn) Closed() {
	c.T.Helper()
	if got, err := c.TryReply(time.Second); err == nil || got != "" || IsTimeout(err) {
		c.T.Errorf("want a closed connection, got %q, %v", got, err)
	}
}

func IsTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// Eventually waits until ok holds, no longer than timeout.
func Eventually(t testing.TB, timeout time.Duration, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", timeout, what)
		}
	}
}

func Unlock(key string, token int64) string { return fmt.Sprintf("UNLOCK %s %d", key, token) }
