package admin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/admin"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

var ctx = context.Background()

// site is a redis-server, a proxy in front of it, and its admin server.
type site struct {
	t     testing.TB
	redis *testredis.Server
	proxy *proxy.Server
	addr  string // of the proxy
	url   string // of the admin server
}

// startSite runs all three until the test ends. change can be nil. prepare is for what no Config
// has.
func startSite(
	t testing.TB, change func(*admin.Config, *proxy.Config), prepare ...func(*admin.Server),
) *site {
	t.Helper()
	return startSiteAt(t, testredis.Start(t), change, prepare...)
}

func startSiteAt(
	t testing.TB, redis *testredis.Server, change func(*admin.Config, *proxy.Config),
	prepare ...func(*admin.Server),
) *site {
	t.Helper()
	s := &site{t: t, redis: redis}
	target, err := upstream.Parse(s.redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg := admin.Config{Metrics: admin.NewMetrics("test"), Logger: hclog.NewNullLogger()}
	behind := proxy.Config{
		Upstream: target, Observer: cfg.Metrics, DialTimeout: testwait.Patience / 4,
		Locks: lockcmd.Config{MaxTimeout: time.Hour, FenceRetention: time.Minute},
	}
	if change != nil {
		change(&cfg, &behind)
	}
	s.proxy = proxy.New(behind)
	cfg.Proxy = s.proxy
	server := admin.New(cfg)
	admin.SetPagesFor(server, time.Nanosecond)
	for _, prepare := range prepare {
		prepare(server)
	}
	ln, adminLn := listen(t), listen(t)
	s.addr, s.url = ln.Addr().String(), "http://"+adminLn.Addr().String()
	served := make(chan error, 2)
	go func() { served <- s.proxy.Serve(ln) }()
	go func() { served <- server.Serve(adminLn) }()
	t.Cleanup(func() {
		server.Close()
		s.proxy.Close()
		for range 2 {
			if err := <-served; err != nil {
				t.Error(err)
			}
		}
	})
	return s
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}

func (s *site) client() *redis.Client { return s.connect(testwait.Patience) }

// waiter is a client that waits for answers without an end: it may wait for a lock until the test
// ends.
func (s *site) waiter() *redis.Client { return s.connect(-1) }

func (s *site) connect(patience time.Duration) *redis.Client {
	options := testredis.Patient(&redis.Options{Addr: s.addr, MaxRetries: -1, PoolSize: 50,
		DisableIdentity: true})
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

// get returns the status and the text of a page.
func (s *site) get(path string) (int, string) {
	s.t.Helper()
	resp, err := http.Get(s.url + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestHealth(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil)
	ready := func(status int, part string) {
		t.Helper()
		testwait.Until(t, fmt.Sprintf("/readyz %d %q", status, part), func() bool {
			got, text := s.get("/readyz")
			return got == status && strings.Contains(text, part)
		})
		if got, _ := s.get("/healthz"); got != 200 {
			t.Errorf("/healthz: %d", got)
		}
	}
	ready(200, "ready")
	s.redis.Pause()
	ready(503, "the upstream "+s.redis.Addr())
	s.redis.Resume()
	ready(200, "ready")
	s.redis.Kill()
	ready(503, "the upstream "+s.redis.Addr())
	s.redis.Restart()
	ready(200, "ready")

	// Draining: a client with a command under way keeps the proxy from ending.
	c := s.waiter()
	blocked := make(chan error, 1)
	go func() { blocked <- c.BLPop(ctx, 0, "nothing").Err() }() // ends with the proxy
	testwait.Until(t, "a client",
		func() bool { return s.proxy.Stats().Commands[proxy.Relayed] > 0 })
	stopping, cancel := context.WithCancel(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- s.proxy.Shutdown(stopping) }()
	ready(503, "shutting down")
	cancel()
	testwait.For(t, "the proxy's end", stopped)
	testwait.For(t, "the client's end", blocked)
}

// An upstream that wants a login counts as ready; one that refuses the URL's login doesn't.
func TestReadyWithPassword(t *testing.T) {
	redis := testredis.Start(t, "--requirepass", "secret")
	s := startSiteAt(t, redis, nil)
	answers := func(s *site, want int, part string) {
		t.Helper()
		testwait.Until(t, fmt.Sprintf("/readyz %d %q", want, part), func() bool {
			got, text := s.get("/readyz")
			if strings.Contains(text, "guess-me") {
				t.Fatalf("it tells the password: %s", text)
			}
			return got == want && strings.Contains(text, part)
		})
	}
	answers(s, 200, "ready") // without credentials
	wrong := startSiteAt(t, redis, func(_ *admin.Config, cfg *proxy.Config) {
		cfg.Upstream, _ = upstream.Parse("redis://:guess-me@" + redis.Addr())
	})
	answers(wrong, 503, "refused the proxy's AUTH")
}

var metricName = regexp.MustCompile(`(?m)^([a-z_][a-z0-9_]*)(\{[^}]*\})? (\S+)$`)

// scrape returns the metrics by name and labels.
func (s *site) scrape() map[string]string {
	s.t.Helper()
	_, text := s.get("/metrics")
	values := map[string]string{}
	for _, m := range metricName.FindAllStringSubmatch(text, -1) {
		values[m[1]+m[2]] = m[3]
	}
	return values
}

func TestMetrics(t *testing.T) {
	s := startSite(t, nil)
	c := s.client()
	for range 200 {
		c.Set(ctx, "k", 1, 0)
	}
	s.lock(c, "a", 300, "SESSION")
	c.Do(ctx, "LOCK", "a", 300)
	c.Do(ctx, "LOCK", "a", 300, "WAIT", 0.01)
	c.Do(ctx, "UNLOCK", "a")
	token := s.lock(c, "b", 300)
	c.Do(ctx, "FENCE", "b", token+1, "SET", "x", 1)
	c.Do(ctx, "UNLOCK", "b", "FORCE")
	c.Do(ctx, "WATCH", "k") // it needs its own connection
	testwait.Until(t, "the probe finds the upstream",
		func() bool { return s.scrape()[`lockproxy_upstream_up`] == "1" })
	got := s.scrape()
	for name, want := range map[string]string{
		`lockproxy_client_connections`:                           "1",
		`lockproxy_commands_total{kind="lock"}`:                  "4",
		`lockproxy_commands_total{kind="fence"}`:                 "1",
		`lockproxy_command_duration_seconds_count{kind="lock"}`:  "3",
		`lockproxy_upstream_connections{use="home"}`:             "1",
		`lockproxy_locks_acquired_total`:                         "2",
		`lockproxy_locks_refused_total{reason="held"}`:           "1",
		`lockproxy_locks_refused_total{reason="wait_over"}`:      "1",
		`lockproxy_locks_released_total{by="holder"}`:            "1",
		`lockproxy_locks_released_total{by="force"}`:             "1",
		`lockproxy_fence_refusals_total`:                         "1",
		`lockproxy_lock_wait_seconds_count{outcome="wait_over"}`: "1",
		`lockproxy_lock_hold_seconds_count`:                      "2",
		`lockproxy_locks_held`:                                   "0",
		`lockproxy_draining`:                                     "0",
		`lockproxy_locks_lost_total`:                             "0",
	} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if n := got[`lockproxy_commands_total{kind="relay"}`]; n < "200" || n > "205" ||
		len(n) != 3 { // with what the client sends when it connects
		t.Errorf("%s relayed", n)
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes",
		`lockproxy_command_duration_seconds_count{kind="relay"}`} {
		if got[name] == "" || got[name] == "0" {
			t.Errorf("%s is %q", name, got[name])
		}
	}
	for name := range got {
		if strings.HasPrefix(name, "lockproxy_build_info") &&
			strings.Contains(name, `version="test"`) {
			return
		}
	}
	t.Error("no lockproxy_build_info of this version")
}

func TestMetricsOfOnce(t *testing.T) {
	s := startSite(t, nil)
	c, waiter := s.client(), s.waiter()
	token, _ := c.Do(ctx, "ONCE", "page", 600).Int64()
	waited := make(chan any, 1)
	go func() { waited <- waiter.Do(ctx, "ONCE", "page", 600, "WAIT", 0).Val() }()
	testwait.Until(t, "a waiter", func() bool { return s.proxy.Stats().Locks.Waiters == 1 })
	c.Do(ctx, "DONE", "page", token, "text", "EX", 600)
	if got := testwait.For(t, "the value", waited); got != "text" {
		t.Errorf("the waiter got %v", got)
	}
	c.Do(ctx, "ONCE", "page", 600)
	again, _ := c.Do(ctx, "ONCE", "page", 600, "EARLY", 900).Int64()
	c.Do(ctx, "ONCE", "page", 600, "EARLY", 900)
	c.Do(ctx, "DONE", "page", again)
	got := s.scrape()
	for event, want := range map[string]string{
		"hit": "2", "maker": "2", "shared": "1", "stored": "1", "given_up": "1",
	} {
		if name := `lockproxy_once_total{event="` + event + `"}`; got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
}

// A page of another name, whose name server says 127.0.0.1, gets nothing.
func TestHostIsChecked(t *testing.T) {
	s := startSite(t, nil)
	for host, want := range map[string]int{
		"": 200, "localhost": 200, "LocalHost:8080": 200, "127.0.0.2:99": 200, "[::1]:9": 200,
		"evil.example": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example:80": 421,
		"10.0.0.1": 421,
	} {
		for _, path := range []string{"/healthz", "/metrics", "/"} {
			req, _ := http.NewRequest("GET", s.url+path, nil)
			if host != "" {
				req.Host = host
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want && !(path == "/" && want == 200) {
				t.Errorf("Host %q, %s: %d, want %d", host, path, resp.StatusCode, want)
			}
			if csp := resp.Header.Get("Content-Security-Policy"); !strings.HasPrefix(csp,
				"default-src 'none'") {
				t.Errorf("%s: policy %q", path, csp)
			}
		}
	}
}

// Profiles are there only if they are asked for.
func TestPprofIsOff(t *testing.T) {
	t.Parallel()
	if got, _ := startSite(t, nil).get("/debug/pprof/"); got != 404 {
		t.Errorf("without the flag: %d", got)
	}
	on := startSite(t, func(cfg *admin.Config, _ *proxy.Config) { cfg.Pprof = true })
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap",
		"/debug/pprof/profile?seconds=1"} {
		if got, _ := on.get(path); got != 200 {
			t.Errorf("%s: %d", path, got)
		}
	}
}

// A client that sends its request byte by byte, or none, doesn't keep its connection.
func TestSlowClientIsClosed(t *testing.T) {
	t.Parallel()
	s := startSite(t, nil, func(s *admin.Server) {
		admin.SetHeaderTimeout(s, 100*time.Millisecond)
	})
	nc, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	fmt.Fprint(nc, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")
	nc.SetReadDeadline(testwait.Deadline())
	// It may be closed before it has sent that much, and be reset.
	if _, err := io.ReadAll(nc); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("still open")
	}
}
