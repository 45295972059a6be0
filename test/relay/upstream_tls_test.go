package relay_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/upstream"
	"lockproxy/proxy"
)

// startRedisTLS starts a redis-server that also serves TLS, on
// the returned port, to clients with a certificate of ca.
func startRedisTLS(t *testing.T, ca *testtls.Authority,
	args ...string) (plain *testredis.Server, port string) {
	pair := ca.Issue(t, "redis.test")
	port = strconv.Itoa(testredis.FreePort(t))
	args = append([]string{"--tls-port", port, "--tls-cert-file", pair.CertFile, "--tls-key-file",
		pair.KeyFile,
		"--tls-ca-cert-file", ca.File, "--tls-auth-clients", "yes"}, args...)
	return testredis.Start(t, args...), port
}

func TestUpstreamTLS(t *testing.T) {
	ca := testtls.NewAuthority(t)
	plain, port := startRedisTLS(t, ca)
	client := ca.Issue(t, "proxy")
	p := proxytest.Start(t, "rediss://127.0.0.1:"+port+"/2",
		proxytest.UpstreamTLS(func(cfg *tls.Config) {
			cfg.RootCAs, cfg.Certificates = ca.Pool, []tls.Certificate{client.Cert}
		}))
	direct, c := proxytest.Dial(t, plain.Addr()), proxytest.Dial(t, p.Addr)
	c.Send("SET a 1", "GET a", "SUBSCRIBE news", "UNSUBSCRIBE news")
	for _, want := range []string{"+OK\r\n", "$1\r\n1\r\n",
		"*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n",
		"*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:0\r\n"} {
		if got := c.Reply(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	direct.Do("SELECT 2")
	direct.Expect("GET a", "$1\r\n1\r\n")
	token := c.Lock("job 600")
	waiting := proxytest.Dial(t, p.Addr)
	waiting.Send("LOCK job 600 WAIT 0")
	proxytest.AwaitWaiters(t, p, "job", 1)
	c.Expect(proxytest.Unlock("job", token), ":1\r\n")
	if got := waiting.Reply(); !strings.HasPrefix(got, ":") {
		t.Errorf("LOCK WAIT: %q", got)
	}

	value := strings.Repeat("x", 2<<20)
	go fmt.Fprintf(c, "*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n%s\r\n", len(value), value)
	if got := c.Reply(); got != "+OK\r\n" {
		t.Errorf("SET of %d bytes: %q", len(value), got)
	}
	if got := c.Do("STRLEN big"); got != ":2097152\r\n" {
		t.Errorf("STRLEN: %q", got)
	}

	// The end of a client reaches Redis, which takes it for the end of the requests.
	half := proxytest.Dial(t, p.Addr)
	half.Send("GET a", "STRLEN big")
	half.CloseWrite()
	if rest, err := io.ReadAll(half.In); string(rest) != "$1\r\n1\r\n:2097152\r\n" || err != nil {
		t.Errorf("half close: %q, %v", rest, err)
	}
	leaving := proxytest.Dial(t, p.Addr)
	leaving.Send("BLPOP list 0")
	leavesBlocked(t, leaving, direct)
}

func TestUpstreamTLSLogin(t *testing.T) {
	ca := testtls.NewAuthority(t)
	_, port := startRedisTLS(t, ca, "--requirepass", "secret", "--tls-auth-clients", "optional")
	trust := proxytest.UpstreamTLS(func(cfg *tls.Config) { cfg.RootCAs = ca.Pool })
	c := proxytest.Dial(t, proxytest.Start(t, "rediss://:secret@127.0.0.1:"+port, trust).Addr)
	c.Expect("SET a 1", "+OK\r\n")
	c = proxytest.Dial(t, proxytest.Start(t, "rediss://127.0.0.1:"+port, trust).Addr)
	c.Expect("SET a 1", "-NOAUTH Authentication required.\r\n")
	c.Expect("AUTH secret", "+OK\r\n")
	c.Expect("SET a 1", "+OK\r\n")
	c = proxytest.Dial(t, proxytest.Start(t, "rediss://:wrong@127.0.0.1:"+port, trust).Addr)
	c.Expect("SET a 1", "-UPSTREAM 127.0.0.1:"+port+" refused the proxy's AUTH: WRONGPASS…")
}

// What is wrong with certificates is reported when connecting, not taken for a lost connection.
func TestUpstreamTLSRefusals(t *testing.T) {
	ca, others := testtls.NewAuthority(t), testtls.NewAuthority(t)
	plain, port := startRedisTLS(t, ca)
	ours, foreign := ca.Issue(t, "proxy").Cert, others.Issue(t, "proxy").Cert
	for _, c := range []struct {
		name   string
		change func(*tls.Config)
		want   string
	}{
		{"good", func(cfg *tls.Config) {}, "+PONG\r\n"},
		{"its own name", func(cfg *tls.Config) { cfg.ServerName = "redis.test" }, "+PONG\r\n"},
		{"another name", func(cfg *tls.Config) {
			cfg.ServerName = "other.test"
		}, "certificate is valid for redis.test, not other.test"},
		{"unknown authority", func(cfg *tls.Config) {
			cfg.RootCAs = others.Pool
		}, "certificate signed by unknown authority"},
		{"no client certificate", func(cfg *tls.Config) {
			cfg.Certificates = nil
		}, "client certificate"},
		{"another's client certificate", func(cfg *tls.Config) {
			cfg.Certificates = []tls.Certificate{foreign}
		}, "client certificate"},
	} {
		p := proxytest.Start(t, "rediss://127.0.0.1:"+port,
			proxytest.UpstreamTLS(func(cfg *tls.Config) {
				cfg.RootCAs, cfg.Certificates = ca.Pool, []tls.Certificate{ours}
				c.change(cfg)
			}))
		got := proxytest.Dial(t, p.Addr).Do("PING")
		if !strings.Contains(got, c.want) || got[0] == '-' &&
			!strings.HasPrefix(got, "-UPSTREAM cannot reach 127.0.0.1:"+port+
				": nothing was sent, try again (") {
			t.Errorf("%s: %q", c.name, got)
		}
	}
	noTLS := proxytest.Start(t, "rediss://"+plain.Addr(), func(cfg *proxy.Config) {
		cfg.DialTimeout = 300 * time.Millisecond
	})
	if got := proxytest.Dial(t, noTLS.Addr).Do("PING"); !strings.HasPrefix(got,
		"-UPSTREAM cannot reach ") {
		t.Errorf("TLS to a plain port: %q", got)
	}
}

func TestUpstreamURLs(t *testing.T) {
	for _, c := range []struct{ url, network, addr, err string }{
		{"redis://127.0.0.1:6379", "tcp", "127.0.0.1:6379", ""},
		{"rediss://user:pa%23ss@redis.test/3", "tcp", "redis.test:6379", ""},
		{"rediss://h?skip_verify=true", "tcp", "h:6379", ""},
		{"unix:///run/redis.sock?db=3", "unix", "/run/redis.sock", ""},
		{"unix://user:secret@/run/redis.sock", "unix", "/run/redis.sock", ""},
		{"unix://run/redis.sock", "", "", "not absolute"},
		{"unix://", "", "", "want unix://[user:pass@]/path[?db=n]"},
		{"redis://:secret@h?pool_size=3", "", "", `option "pool_size"`},
		{"redis://:secret@h?skip_verify=true", "", "", "not a usable"},
		{"redis://:secret@h?nope=1", "", "", "not a usable"},
		{"redis://:sec#ret@h", "", "", "written as %23"},
		{"redis://:secret@h:99999", "", "", "port"},
		{"http://:secret@h", "", "", "scheme"},
		{"secret@h", "", "", "want redis://"},
	} {
		u, err := upstream.Parse(c.url)
		switch {
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) ||
			strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v", c.url, err)
		case c.err == "" && (err != nil || u.Network != c.network || u.Addr != c.addr ||
			strings.Contains(u.String(), "secret")):
			t.Errorf("%s: %+v, %v", c.url, u, err)
		}
	}
}
