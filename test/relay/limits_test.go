package relay_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// A client above the limit is refused in Redis's words, and delays no other.
func TestMaxClients(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.MaxClients = 3 })
	var clients []*proxytest.Conn
	for range 3 {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("PING", "+PONG\r\n")
		clients = append(clients, c)
	}
	for range 20 {
		proxytest.Dial(t, p.Addr) // it never reads
	}
	extra := proxytest.Dial(t, p.Addr)
	rest, err := io.ReadAll(extra.In)
	if string(rest) != "-ERR max number of clients reached\r\n" || err != nil {
		t.Errorf("the fourth client: %q, %v", rest, err)
	}
	clients[0].Expect("PING", "+PONG\r\n")
	clients[0].Close()
	testwait.Until(t, "a new client is served", func() bool {
		nc, err := proxytest.TryDial(p.Addr)
		if err != nil {
			return false
		}
		defer nc.Close()
		nc.SetDeadline(testwait.Deadline())
		nc.Write([]byte("PING\r\n"))
		answer := make([]byte, 7)
		_, err = io.ReadFull(nc, answer)
		return err == nil && string(answer) == "+PONG\r\n"
	})
}

func TestMaxClientsAmongSilentTLS(t *testing.T) {
	server := testredis.Start(t)
	p, trusting := startTLS(t, server.URL(), func(cfg *proxy.Config) {
		cfg.MaxClients, cfg.HandshakeTimeout = 3, 2*time.Second
	})
	for range 3 {
		proxytest.Dial(t, p.Addr) // it never begins its handshake
	}
	proxytest.Dial(t, p.Addr).Closed() // without a message, as in Redis
	// when their time has expired
	testwait.Until(t, "silent clients make room", func() bool {
		nc, err := tls.Dial("tcp", p.Addr, trusting)
		if err != nil {
			return false
		}
		return nc.Close() == nil
	})
}

// At each limit the proxy answers and closes as Redis does.
func TestLimits(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Limits = resp.Limits{Args: 10, Bulk: 2000, Inline: 200}
		cfg.ClientBuffer = 100000
	})
	for _, c := range []struct{ name, request, want string }{
		{"arguments", "*11\r\n", "-ERR Protocol error: invalid multibulk length\r\n"},
		{"as many arguments as allowed", "*10\r\n$3\r\nDEL\r\n" + strings.Repeat("$1\r\nx\r\n", 9),
			":0\r\n"},
		{"bulk", "*2\r\n$4\r\nECHO\r\n$2001\r\n", "-ERR Protocol error: invalid bulk length\r\n"},
		{"bulk as long as allowed", fmt.Sprintf("*2\r\n$6\r\nSTRLEN\r\n$2000\r\n%s\r\n",
			strings.Repeat("x", 2000)), ":0\r\n"},
		{"inline", strings.Repeat("x", 201), "-ERR Protocol error: too big inline request\r\n"},
		{"header line", "*" + strings.Repeat("1", 201),
			"-ERR Protocol error: too big mbulk count string\r\n"},
	} {
		nc := proxytest.Dial(t, p.Addr)
		nc.WriteRaw(c.request)
		if got := nc.Reply(); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
		if strings.HasPrefix(c.want, "-ERR Protocol") {
			nc.Closed()
		}
	}
}

// Requests that must be held whole are bounded by --client-buffer; others stream.
func TestClientBuffer(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.ClientBuffer = 100000 })
	c := proxytest.Dial(t, p.Addr)
	c.Expect("SET big "+strings.Repeat("x", 300000), "+OK\r\n")
	c.Expect("STRLEN big", ":300000\r\n")
	c.Lock(strings.Repeat("k", 99900) + " 600")
	// A larger lock command is refused and skipped: the
	// connection continues, with its session locks.
	token := c.Lock("job 600 SESSION")
	large := strings.Repeat("k", 300000)
	c.Expect("LOCK "+large+" 600",
		"-ERR the LOCK command is larger than 100000 bytes (--client-buffer): nothing was run\r\n")
	c.Expect(fmt.Sprintf("FENCE job %d SET big %s", token, large),
		"-ERR the FENCE command is larger than 100000 bytes…")
	c.Expect("STRLEN big", ":300000\r\n") // unchanged
	c.Expect("MULTI", "+OK\r\n")
	c.Expect("LOCK "+large+" 600", "-ERR the LOCK command is larger…")
	c.Expect("EXEC", "-EXECABORT…")
	c.Send("PING", "UNLOCK "+large, "PING")
	for _, want := range []string{"+PONG\r\n", "-ERR the UNLOCK command is …", "+PONG\r\n"} {
		got := c.Reply()
		if got != want && !strings.HasPrefix(got, strings.TrimSuffix(want, "…")) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	c.Expect(proxytest.Unlock("job", token), ":1\r\n")
	c.WriteRaw("*2\r\n$6\r\nUNLOCK\r\n$200000\r\n" + strings.Repeat("k", 200000) + "\r\n")
	if got := c.Reply(); !strings.HasPrefix(got, "-ERR the UNLOCK command is larger") {
		t.Errorf("an UNLOCK that ends with its key: %q", got)
	}
	// A malformed one ends the connection, like any malformed request.
	c.WriteRaw("*3\r\n$4\r\nLOCK\r\n$200000\r\n" + strings.Repeat("k", 200000) + "\r\nx1\r\n")
	if got := c.Reply(); !strings.HasPrefix(got, "-ERR Protocol error: expected '$'") {
		t.Errorf("a request that isn't one: %q", got)
	}
	c.Closed()
	// The user of a HELLO that is not held is unknown, but its protocol is known.
	c = proxytest.Dial(t, p.Addr)
	c.Expect("PING", "+PONG\r\n")
	c.Expect("HELLO 3 SETNAME "+strings.Repeat("n", 300000), "%7…")
	c.Expect("LOCKINFO nothing",
		"-ERR lock commands can't be used on a connection whose state was changed in a way…")
	c.Expect("GET nothing", "_\r\n")
	c.Expect("SUBSCRIBE a", ">3…")
	c.Expect("RESET", "+RESET\r\n")
	c.Expect("LOCKINFO nothing", "$-1\r\n")
	c.Expect("HELLO 3 SETNAME short", "%7…")
	c.Expect("LOCKINFO nothing", "_\r\n")

	c = proxytest.Dial(t, p.Addr)
	// not held: the proxy adds nothing to Redis's reply
	c.Expect("COMMAND DOCS "+strings.Repeat("k", 300000), "*0\r\n")
}
