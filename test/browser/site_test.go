package browser_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/admin"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

var ctx = context.Background()

const adminToken = "0123456789abcdef-the-token"

// site is a redis-server, a proxy in front of it, and its admin server.
type site struct {
	t     *testing.T
	redis *testredis.Server
	proxy *proxytest.Proxy
	url   string // of the admin server
}

// startSite runs all three until the test ends. change can be nil.
func startSite(t *testing.T, change func(*admin.Config, *proxy.Config)) *site {
	t.Helper()
	return startSiteAt(t, testredis.Start(t), change)
}

func startSiteAt(
	t *testing.T, redis *testredis.Server, change func(*admin.Config, *proxy.Config),
) *site {
	t.Helper()
	s := &site{t: t, redis: redis}
	cfg := admin.Config{Metrics: admin.NewMetrics("test"), Logger: hclog.NewNullLogger()}
	s.proxy = proxytest.StartBy(t, testredis.TCP, redis.URL(), func(p *proxy.Config) {
		p.Observer = cfg.Metrics
		p.Locks.History = 0
		if change != nil {
			change(&cfg, p)
		}
	})
	cfg.Proxy = s.proxy.Server
	server := admin.New(cfg)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

func withToken(cfg *admin.Config, _ *proxy.Config) { cfg.Token = adminToken }

func remembering(a *admin.Config, p *proxy.Config) { p.Locks.History, a.MetricShapes = 1<<20, 5 }

func (s *site) client() *redis.Client { return s.connect("", 50, testwait.Patience) }

// waiter is a client that waits for answers without an end: it may wait for a lock until the test
// ends.
func (s *site) waiter() *redis.Client { return s.connect("", 50, -1) }

func (s *site) connect(name string, connections int, patience time.Duration) *redis.Client {
	options := testredis.Patient(&redis.Options{Addr: s.proxy.Addr, ClientName: name,
		MaxRetries: -1, PoolSize: connections, DisableIdentity: true})
	options.ReadTimeout = patience
	c := redis.NewClient(options)
	s.t.Cleanup(func() { c.Close() })
	return c
}

func (s *site) lock(c *redis.Client, args ...any) int64 {
	s.t.Helper()
	token, err := c.Do(ctx, append([]any{"LOCK"}, args...)...).Int64()
	if err != nil {
		s.t.Fatalf("LOCK %v: %v", args, err)
	}
	return token
}

// deadlock has two owners, each of which has a lock, wait for the other's, until the second one is
// refused. Then the second lets go of its lock, which the first is given.
func (s *site) deadlock(first, second, anna, bert string) {
	s.t.Helper()
	c := s.client()
	s.lock(c, first, 600, "OWNER", anna)
	token := s.lock(c, second, 600, "OWNER", bert)
	before := s.proxy.Server.Stats().Locks.Waiters
	given := make(chan error, 1)
	go func() { // ends when the second lock is free
		given <- s.waiter().Do(ctx, "LOCK", second, 600, "WAIT", 0, "OWNER", anna).Err()
	}()
	testwait.Until(s.t, anna+" waits",
		func() bool { return s.proxy.Server.Stats().Locks.Waiters > before })
	err := c.Do(ctx, "LOCK", first, 600, "WAIT", 0, "OWNER", bert).Err()
	if err == nil || !strings.HasPrefix(err.Error(), "DEADLOCK ") {
		s.t.Fatalf("told %v", err)
	}
	c.Do(ctx, "UNLOCK", second, token)
	if err := testwait.For(s.t, anna+"'s lock", given); err != nil {
		s.t.Error(err)
	}
	c.Do(ctx, "UNLOCK", first, "FORCE")
	c.Do(ctx, "UNLOCK", second, "FORCE")
}
