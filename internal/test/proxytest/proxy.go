package proxytest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/journal"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// Shutdown begins to shut a proxy down, and returns what waits for the end of that. ctx says when
// clients have had enough time.
func Shutdown(ctx context.Context, t *testing.T, p *Proxy) (wait func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- p.Server.Shutdown(ctx) }() // ends with the test's proxy at the latest
	testwait.Until(t, "it drains", func() bool { return p.Server.Stats().Draining })
	return func() error {
		t.Helper()
		return testwait.For(t, "the end of the drain", ended)
	}
}

// KnowsEnd reports whether the kernel has told a client already that its connection has ended, once
// it has read all.
func KnowsEnd(t testing.TB, nc net.Conn) bool {
	t.Helper()
	_, ended := unread(t, nc)
	return ended
}

// unread is, without waiting, how many bytes can be read from a connection, counted to one, or
// whether it has ended.
func unread(t testing.TB, nc net.Conn) (n int, ended bool) {
	t.Helper()
	if virtual, ok := nc.(*virtualnet.Conn); ok {
		return virtual.Unread()
	}
	if inner, ok := nc.(interface{ NetConn() net.Conn }); ok { // TLS
		nc = inner.NetConn()
	}
	control, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	control.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return max(n, 0), err == nil && n == 0 || errors.Is(err, syscall.ECONNRESET)
}

// Proxy is a proxy in this process, on its own loopback port.
type Proxy struct {
	Addr     string
	Upstream string // its upstream's address: host:port, a path, or the group's name
	Server   *proxy.Server
	Shares   bool // its clients use lanes
	tls      bool // its clients use TLS
}

// testProxies are those that were started, by address.
var testProxies sync.Map

// Dedicated is whether the proxies under test give every client its own upstream connection.
var Dedicated = os.Getenv("LOCKPROXY_TEST_UPSTREAM_MODE") == "dedicated"

// Start serves in front of the Redis at url until the test ends, in the same network. change can be
// nil.
func Start(t testing.TB, url string, change func(*proxy.Config)) *Proxy {
	t.Helper()
	return StartBy(t, testredis.ChooseTransport(t, testredis.Clients, testredis.TLS,
		testredis.Unix), url, change)
}

// StartBy is Start for a test that is about a transport: clients come by that. Dial knows it.
func StartBy(
	t testing.TB, by testredis.Transport, url string, change func(*proxy.Config),
) *Proxy {
	t.Helper()
	upstream := parse(t, url).Addr
	var secured *tls.Config
	if by == testredis.TLS && !virtualnet.Has(upstream) {
		secured = testtls.ServerConfig()
	}
	return startOn(t, listen(t, upstream, by), secured, url, change)
}

// StartAt is Start at an address of this machine.
func StartAt(t testing.TB, at, url string, change func(*proxy.Config)) *Proxy {
	t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	return StartOn(t, ln, url, change)
}

// StartOn is Start for the clients of a listener.
func StartOn(t testing.TB, ln net.Listener, url string, change func(*proxy.Config)) *Proxy {
	t.Helper()
	return startOn(t, ln, nil, url, change)
}

// startOn is StartOn for clients with TLS, unless secured is nil or the test has its own.
func startOn(
	t testing.TB, ln net.Listener, secured *tls.Config, url string, change func(*proxy.Config),
) *Proxy {
	t.Helper()
	target := parse(t, testredis.Reach(url))
	if cfg := target.TLS(); cfg != nil {
		cfg = cfg.Clone()
		cfg.RootCAs = testtls.Common().Pool
		target.SetTLS(cfg)
	}
	patience := testwait.Patience / 4 // a Redis of a loaded machine can take seconds
	if virtualnet.Has(target.Addr) {
		target.Dialer, patience = virtualnet.Dial, 0
	}
	log := &testredis.LogBuffer{}
	cfg := proxy.Config{
		DialTimeout: patience,
		Upstream:    target,
		Locks: lockcmd.Config{MaxTimeout: 24 * time.Hour, FenceRetention: 10 * time.Minute,
			History: 4 << 20},
		Logger: hclog.New(&hclog.LoggerOptions{Output: log}),
		// The same tests run in both modes: see the Makefile.
		Dedicated:        Dedicated,
		TLS:              secured,
		HandshakeTimeout: testwait.Patience,
	}
	if change != nil {
		change(&cfg)
	}
	loopguard.On()
	p := &Proxy{Addr: ln.Addr().String(), Upstream: target.Addr, Server: proxy.New(cfg), Shares: !cfg.Dedicated,
		tls: secured != nil && cfg.TLS == secured}
	testProxies.Store(p.Addr, p)
	served := make(chan error, 1)
	go func() { served <- p.Server.Serve(ln) }()
	t.Cleanup(func() {
		testProxies.CompareAndDelete(p.Addr, p) // or its memory stays until the last test has ended
		if t.Failed() {
			p.explain(t, log)
		}
		p.Server.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return p
}

// explain logs what a proxy knows that a test has failed with.
func (p *Proxy) explain(t testing.TB, log *testredis.LogBuffer) {
	t.Helper()
	t.Logf("the proxy at %s logged:\n%s", p.Addr, log.String())
	events, _ := p.Server.Locks().Events(30, func(*journal.Event) bool { return true })
	for _, event := range events {
		t.Logf("%v ago %v of %q: %+v, wait %v, hold %v", event.Ago(),
			event.Kind, event.Key, event.Holder, event.Wait, event.Hold)
	}
	for _, lock := range p.Server.Locks().Snapshot(30) {
		t.Logf("%+v", lock)
	}
}

func parse(t testing.TB, url string) *upstream.Upstream {
	t.Helper()
	target, err := upstream.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// StartBoth starts a redis-server and a proxy in front of it.
func StartBoth(t testing.TB, redisArgs ...string) (*testredis.Server, *Proxy) {
	t.Helper()
	server := testredis.Start(t, redisArgs...)
	return server, Start(t, server.URL(), nil)
}

// GoRedis is a go-redis client of addr that never tries again by itself.
func GoRedis(t testing.TB, addr string) *redis.Client {
	c := redis.NewClient(testredis.Patient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 200,
		DisableIdentity: true, Dialer: dial}))
	t.Cleanup(func() { c.Close() })
	return c
}

// Ctx is for calls that need a context and have no bound.
var Ctx = context.Background()

// IsTimeout reports whether a read or write met its deadline.
func IsTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// Unlock is the command that releases a lock by its token.
func Unlock(key string, token int64) string { return fmt.Sprintf("UNLOCK %s %d", key, token) }

// AwaitJudged returns when Redis has been asked again whether it lets clients in, and has answered: the
// proxy then treats all clients by what Redis says now.
func AwaitJudged(t testing.TB, p *Proxy) {
	t.Helper()
	asked := p.Server.Stats().Connections.Asked
	testwait.Until(t, "Redis has said whether it lets clients in", func() bool {
		c := Dial(t, p.Addr)
		defer c.Close()
		c.Do("PING") // the proxy asks while clients come
		return p.Server.Stats().Connections.Answered > asked
	})
}
