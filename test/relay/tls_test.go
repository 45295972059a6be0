package relay_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// startTLS serves TLS in front of the Redis at url; the result's clients trust it.
func startTLS(t *testing.T, url string,
	change func(*proxy.Config)) (*proxytest.Proxy, *tls.Config) {
	ca := testtls.NewAuthority(t)
	server := ca.Issue(t, "localhost")
	p := proxytest.Start(t, url, func(cfg *proxy.Config) {
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{server.Cert}}
		if change != nil {
			change(cfg)
		}
	})
	return p, &tls.Config{RootCAs: ca.Pool, ServerName: "localhost"}
}

func dialTLS(t *testing.T, addr string, cfg *tls.Config) *proxytest.Conn {
	t.Helper()
	nc, err := tls.Dial("tcp", addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &proxytest.Conn{T: t, Conn: nc, In: bufio.NewReader(nc)}
}

func TestTLSServesClients(t *testing.T) {
	server := testredis.Start(t)
	p, trusting := startTLS(t, server.URL(), nil)
	c := dialTLS(t, p.Addr, trusting)
	c.Send("SET a 1", "GET a", "MULTI", "INCR a", "EXEC")
	for _, want := range []string{"+OK\r\n", "$1\r\n1\r\n", "+OK\r\n", "+QUEUED\r\n",
		"*1\r\n:2\r\n"} {
		if got := c.Reply(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	token := c.Lock("job 600")
	c.Expect("LOCK job 600", "$-1\r\n")
	c.Expect(proxytest.Unlock("job", token), ":1\r\n")

	value := strings.Repeat("0123456789abcdef", 1<<17) // 2 MiB
	go fmt.Fprintf(c, "*3\r\n$3\r\nSET\r\n$3\r\nbig\r\n$%d\r\n%s\r\n", len(value), value)
	if got := c.Reply(); got != "+OK\r\n" {
		t.Errorf("SET of %d bytes: %q", len(value), got)
	}
	if got := c.Do("GET big"); len(got) != len(value)+len("$2097152\r\n\r\n") {
		t.Errorf("GET: %d bytes", len(got))
	}
	c.Expect("QUIT", "+OK\r\n")
	if _, err := c.TryReply(); err != io.EOF { // with the alert with which TLS ends
		t.Errorf("after QUIT: %v", err)
	}

	clients := redis.NewClient(testredis.Patient(&redis.Options{
		Addr: p.Addr, Protocol: 3, TLSConfig: trusting}))
	defer clients.Close()
	if got, err := clients.Do(proxytest.Ctx, "LOCK", "job", 300).Int64(); err != nil ||
		got <= token {
		t.Errorf("LOCK by go-redis: %d, %v", got, err)
	}
}

// A client that closes its sending side still gets its replies.
func TestTLSHalfClose(t *testing.T) {
	server := testredis.Start(t)
	p, trusting := startTLS(t, server.URL(), nil)
	c := dialTLS(t, p.Addr, trusting)
	c.Send("SET a 1", "GET a", "LOCK job 600")
	c.Conn.(*tls.Conn).CloseWrite()
	rest, err := io.ReadAll(c.In)
	if err != nil || !strings.HasPrefix(string(rest), "+OK\r\n$1\r\n1\r\n:") {
		t.Errorf("got %q, %v", rest, err)
	}
}

// While a client waits, the proxy continues to read from it: TLS must survive that.
func TestTLSWaits(t *testing.T) {
	server := testredis.Start(t)
	p, trusting := startTLS(t, server.URL(), nil)
	other, waiting, leaving := proxytest.Dial(t, server.Addr()), dialTLS(t, p.Addr, trusting),
		dialTLS(t, p.Addr, trusting)
	for round := range 3 {
		waiting.Send("BLPOP list 0", "ECHO behind")
		testwait.Until(t, "it blocks", func() bool {
			return strings.Contains(other.Do("INFO clients"), "blocked_clients:1\r\n")
		})
		read := p.Server.Stats().BytesIn
		waiting.Send("ECHO later")
		testwait.Until(t, "more is read from it", func() bool {
			return p.Server.Stats().BytesIn > read
		})
		other.Do(fmt.Sprint("RPUSH list ", round))
		for _, want := range []string{fmt.Sprintf("*2\r\n$4\r\nlist\r\n$1\r\n%d\r\n", round),
			"$6\r\nbehind\r\n", "$5\r\nlater\r\n"} {
			if got := waiting.Reply(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}

	leaving.Send("BLPOP list 0")
	leavesBlocked(t, leaving, other)

	holder := dialTLS(t, p.Addr, trusting)
	token := holder.Lock("job 600")
	gone := dialTLS(t, p.Addr, trusting)
	gone.Send("LOCK job 600 WAIT 0")
	waiters := func(n int) {
		testwait.Until(t, "so many wait", func() bool { return p.Server.Stats().Locks.Waiters == n })
	}
	waiters(1)
	waiting.Send("LOCK job 600 WAIT 0", "PING")
	waiters(2)
	gone.Close()
	waiters(1)
	holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
	if got := waiting.Reply(); !strings.HasPrefix(got, ":") {
		t.Errorf("LOCK after a waiter that left: %q", got)
	}
	if got := waiting.Reply(); got != "+PONG\r\n" {
		t.Errorf("got %q", got)
	}
}

// Clients without a handshake delay no other.
func TestTLSWithoutHandshake(t *testing.T) {
	p, trusting := startTLS(t, testredis.Start(t).URL(), func(cfg *proxy.Config) {
		cfg.HandshakeTimeout = time.Hour
	})
	silent := silentTLS(t, p.Addr)
	dialTLS(t, p.Addr, trusting).Expect("PING", "+PONG\r\n")
	for _, c := range silent {
		if c.Arrived() {
			t.Error("a client that may still begin its handshake is told something, or closed")
		}
	}
	plain := proxytest.Dial(t, p.Addr)
	plain.Send("PING")
	rest, _ := io.ReadAll(plain.In)
	if strings.Contains(string(rest), "PONG") {
		t.Errorf("plain text was served: %q", rest)
	}
}

// A client that speaks TLS to a port that does not is told so, as far as it can be, and so is the log.
func TestTLSToAPlainPort(t *testing.T) {
	t.Parallel()
	log := &lineLog{}
	p := proxytest.Start(t, testredis.Start(t).URL(), func(cfg *proxy.Config) {
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log})
	})
	_, err := tls.Dial("tcp", p.Addr, &tls.Config{ServerName: "localhost"})
	var mismatch tls.RecordHeaderError
	if !errors.As(err, &mismatch) {
		t.Errorf("the client is told: %v", err)
	}
	c := proxytest.Dial(t, p.Addr)
	c.WriteRaw("\x16\x03\x01\x02\x00\x01\x00")
	c.WantReply("-ERR Protocol error: this port does not speak TLS\r\n")
	c.Closed()
	const said = "[WARN]  a client speaks TLS, and this port does not: rediss:// needs --tls-cert"
	testwait.Until(t, "the log says so for both", func() bool { return log.count(said) == 2 })
}

// Clients without a handshake are closed after a while, and those that have made theirs are not.
func TestTLSHandshakeIsBounded(t *testing.T) {
	p, trusting := startTLS(t, testredis.Start(t).URL(), func(cfg *proxy.Config) {
		cfg.HandshakeTimeout = 100 * time.Millisecond
	})
	var patient net.Conn
	testwait.Until(t, "a handshake is made in time", func() (ok bool) {
		nc, err := tls.Dial("tcp", p.Addr, trusting)
		if err != nil {
			return false
		}
		t.Cleanup(func() { nc.Close() })
		patient = nc
		fmt.Fprint(nc, "PING\r\n")
		got, _ := proxytest.Dialed(t, nc).TryReply()
		return got == "+PONG\r\n"
	})
	for _, c := range silentTLS(t, p.Addr) {
		c.Closed()
	}
	proxytest.Dialed(t, patient).Expect("PING", "+PONG\r\n") // whose time began before theirs
}

// silentTLS are clients that do not make their handshake.
func silentTLS(t *testing.T, addr string) (silent []*proxytest.Conn) {
	for i := range 20 {
		c := proxytest.Dial(t, addr)
		if i%2 == 0 {
			c.WriteRaw("\x16\x03\x01\x02\x00\x01") // the beginning of a ClientHello
		}
		silent = append(silent, c)
	}
	return silent
}

func TestTLSClientCertificates(t *testing.T) {
	server := testredis.Start(t)
	ours, others := testtls.NewAuthority(t), testtls.NewAuthority(t)
	p, trusting := startTLS(t, server.URL(), func(cfg *proxy.Config) {
		cfg.TLS.ClientAuth, cfg.TLS.ClientCAs = tls.RequireAndVerifyClientCert, ours.Pool
	})
	for _, c := range []struct {
		name   string
		certs  []tls.Certificate
		served bool
	}{
		{"ours", []tls.Certificate{ours.Issue(t, "client").Cert}, true},
		{"another's", []tls.Certificate{others.Issue(t, "client").Cert}, false},
		{"none", nil, false},
	} {
		cfg := trusting.Clone()
		cfg.Certificates = c.certs
		nc, err := tls.Dial("tcp", p.Addr, cfg)
		if err == nil {
			nc.SetDeadline(testwait.Deadline())
			nc.Write([]byte("PING\r\n"))
			// with TLS 1.3 the refusal comes after the client's handshake
			_, err = nc.Read(make([]byte, 16))
			nc.Close()
		}
		if (err == nil) != c.served {
			t.Errorf("certificate: %s: %v", c.name, err)
		}
	}
}

// Close waits for no client, even if one doesn't read.
func TestTLSCloseDoesNotWait(t *testing.T) {
	server := testredis.Start(t)
	p, trusting := startTLS(t, server.URL(), func(cfg *proxy.Config) {
		cfg.HandshakeTimeout = time.Hour
	})
	c := dialTLS(t, p.Addr, trusting)
	c.Do("SET big " + strings.Repeat("x", 1<<20))
	for range 20 {
		c.Send("GET big")
	}
	stuck := proxytest.Dial(t, p.Addr) // in its handshake
	stuck.WriteRaw("\x16")
	testwait.Until(t, "both are there", func() bool {
		return p.Server.Stats().Clients == 2 && c.Arrived()
	})
	closed := make(chan struct{})
	go func() { // waited for below
		defer close(closed)
		p.Server.Close()
	}()
	testwait.For(t, "Close returns", closed)
}

// At Shutdown a client gets its replies and a proper end; a
// client in its handshake isn't waited for.
func TestTLSShutdown(t *testing.T) {
	server := testredis.Start(t)
	p, trusting := startTLS(t, server.URL(), func(cfg *proxy.Config) {
		cfg.HandshakeTimeout = time.Hour
	})
	stuck := proxytest.Dial(t, p.Addr)
	stuck.WriteRaw("\x16")
	idle, busy := dialTLS(t, p.Addr, trusting), dialTLS(t, p.Addr, trusting)
	idle.Expect("PING", "+PONG\r\n")
	busy.Send("BLPOP list 0")
	other := proxytest.Dial(t, server.Addr())
	testwait.Until(t, "it blocks", func() bool {
		return strings.Contains(other.Do("INFO clients"), "blocked_clients:1\r\n")
	})
	wait := proxytest.Shutdown(proxytest.Ctx, t, p)
	other.Expect("RPUSH list x", ":1\r\n")
	if got := busy.Reply(); got != "*2\r\n$4\r\nlist\r\n$1\r\nx\r\n" {
		t.Errorf("BLPOP: %q", got)
	}
	if err := wait(); err != nil {
		t.Error(err)
	}
	for _, c := range []*proxytest.Conn{idle, busy} {
		if rest, err := io.ReadAll(c.In); len(rest) > 0 || err != nil {
			t.Errorf("at the end: %q, %v", rest, err)
		}
	}
	stuck.Closed()
}

func TestTLSRedisCLI(t *testing.T) {
	server := testredis.Start(t)
	ca, clients := testtls.NewAuthority(t), testtls.NewAuthority(t)
	pair, client := ca.Issue(t, "localhost"), clients.Issue(t, "cli")
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{pair.Cert},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients.Pool}
	})
	_, port, _ := net.SplitHostPort(p.Addr)
	args := []string{"-p", port, "--tls", "--cacert", ca.File, "--cert", client.CertFile, "--key",
		client.KeyFile}
	for command, want := range map[string]string{"SET a 1": "OK", "LOCK job 600": "1",
		"COMMAND DOCS LOCK": "lock\nsummary"} {
		out, err := exec.Command("redis-cli",
			append(args, strings.Fields(command)...)...).CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("redis-cli --tls %s: %v\n%s", command, err, out)
		}
	}
	out, _ := exec.Command("redis-cli", append(args[:5:5], "PING")...).CombinedOutput()
	if strings.Contains(string(out), "PONG") {
		t.Errorf("redis-cli without a certificate: %s", out)
	}
}
