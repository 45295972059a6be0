package relay_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/pires/go-proxyproto"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// headersFrom makes connections from networks begin with a PROXY header.
func headersFrom(t *testing.T, networks string) func(*proxy.Config) {
	list, err := proxy.ParseNetworks(networks)
	if err != nil {
		t.Fatal(err)
	}
	return func(cfg *proxy.Config) {
		cfg.ProxyProtocolFrom, cfg.HandshakeTimeout = list, time.Hour
	}
}

// proxyHeader is the header of a client at source.
func proxyHeader(t *testing.T, version byte, source string) string {
	addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(source))
	var b bytes.Buffer
	if _, err := proxyproto.HeaderProxyFromAddrs(version, addr, addr).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestProxyProtocolGivesTheClientsAddress(t *testing.T) {
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), headersFrom(t, "10.0.0.0/8, 127.0.0.1"))
	local := "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00" // a balancer's version 2 health check
	for _, c := range []struct{ name, header, addr string }{
		{"version 1", proxyHeader(t, 1, "203.0.113.7:4711"), "203.0.113.7:4711"},
		{"version 1, IPv6", proxyHeader(t, 1, "[2001:db8::7]:4711"), "[2001:db8::7]:4711"},
		{"version 2", proxyHeader(t, 2, "203.0.113.7:4711"), "203.0.113.7:4711"},
		{"version 2, IPv6", proxyHeader(t, 2, "[2001:db8::7]:4711"), "[2001:db8::7]:4711"},
		{"version 1, unknown", "PROXY UNKNOWN\r\n", "127.0.0.1:"},
		{"version 2, local", local, "127.0.0.1:"},
	} {
		nc := proxytest.Dial(t, p.Addr)
		nc.WriteRaw(c.header + "PING\r\n")
		if got := nc.Reply(); got != "+PONG\r\n" {
			t.Errorf("%s: %q", c.name, got)
			continue
		}
		token := nc.Lock("job 600")
		if got := nc.Do("LOCKINFO job"); !strings.Contains(got, "\r\n"+c.addr) {
			t.Errorf("%s: %q", c.name, got)
		}
		nc.Expect(proxytest.Unlock("job", token), ":1\r\n")
	}

	// After the header a session is like any other: it can wait, and be left.
	nc, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, server.Addr())
	nc.WriteRaw(proxyHeader(t, 2, "203.0.113.7:4711"))
	nc.Send("BLPOP list 0", "ECHO behind")
	leavesBlocked(t, nc, other)
}

// A peer that must send a header delays no other until it does.
func TestProxyProtocolWithoutHeader(t *testing.T) {
	p := proxytest.Start(t, testredis.Start(t).URL(), headersFrom(t, "127.0.0.0/8"))
	silent, partial, bare, broken := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	partial.WriteRaw("\r\n\r\n\x00\r\n")
	bare.Send("PING")
	broken.WriteRaw("PROXY TCP4 nonsense\r\nPING\r\n")
	want := "-ERR expected a PROXY header, " +
		"since this address is one of --proxy-protocol-from\r\n"
	if got := bare.Reply(); got != want {
		t.Errorf("without a header: %q", got)
	}
	good := proxytest.Dial(t, p.Addr)
	good.WriteRaw(proxyHeader(t, 1, "203.0.113.7:4711") + "PING\r\n")
	if got := good.Reply(); got != "+PONG\r\n" {
		t.Errorf("a client among silent ones: %q", got)
	}
	bare.Closed()
	broken.Closed()
	if silent.Arrived() || partial.Arrived() {
		t.Error("a client that may still send its header is told something, or closed")
	}
}

// A peer that sends no header in time is closed, and one that does is not.
func TestProxyProtocolHeaderIsAwaitedForAWhile(t *testing.T) {
	from := headersFrom(t, "127.0.0.0/8")
	p := proxytest.Start(t, testredis.Start(t).URL(), func(cfg *proxy.Config) {
		from(cfg)
		cfg.HandshakeTimeout = 50 * time.Millisecond
	})
	var good *proxytest.Conn
	testwait.Until(t, "a client sends its header in time", func() bool {
		good = proxytest.Dial(t, p.Addr)
		good.Write([]byte(proxyHeader(t, 1, "203.0.113.7:4711") + "PING\r\n"))
		got, _ := good.TryReply()
		return got == "+PONG\r\n"
	})
	silent, partial := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	partial.WriteRaw("\r\n\r\n\x00\r\n")
	silent.Closed()
	partial.Closed()
	good.Expect("PING", "+PONG\r\n") // whose time began before theirs
}

// Balancers check all the time whether the port is open: that is not worth a log line.
func TestProxyProtocolChecksAreNotLogged(t *testing.T) {
	server := testredis.Start(t)
	var mu sync.Mutex
	var log bytes.Buffer
	from := headersFrom(t, "127.0.0.0/8")
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		from(cfg)
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: &mu})
	})
	said := func() string {
		mu.Lock()
		defer mu.Unlock()
		return log.String()
	}
	for range 5 {
		proxytest.Dial(t, p.Addr).Close()
	}
	testwait.Until(t, "they are forgotten", func() bool {
		st := p.Server.Stats()
		return st.Accepted == 5 && st.Clients == 0
	})
	proxytest.Dial(t, p.Addr).Expect("PING", "-ERR expected a PROXY header…")
	testwait.Until(t, "a line in the log", func() bool { return said() != "" })
	proxytest.Dial(t, p.Addr).Expect("PING", "-ERR expected a PROXY header…")
	// two seconds at most
	if lines := strings.Count(said(), "\n"); lines > 2 ||
		!strings.Contains(said(), `failed="PROXY header"`) {
		t.Errorf("%d lines:\n%s", lines, said())
	}
}

// From other addresses a header is what Redis makes of it: an inline command that it doesn't know.
func TestProxyProtocolFromElsewhere(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	for _, header := range []string{"PROXY TCP4 203.0.113.7 203.0.113.8 1 2\r\n",
		proxyHeader(t, 2, "203.0.113.7:4711")} {
		for _, networks := range []string{"10.0.0.0/8", ""} {
			change := func(*proxy.Config) {}
			if networks != "" {
				change = headersFrom(t, networks)
			}
			request := []byte(header + "\r\nPING\r\n")
			want := hostileTalk(t, server.Addr(), request)
			got := hostileTalk(t, proxytest.Start(t, server.URL(), change).Addr, request)
			if got != want {
				t.Errorf("%q: got %q, want %q", header, got, want)
			}
		}
	}
}

func TestProxyProtocolBeforeTLS(t *testing.T) {
	server := testredis.Start(t)
	ca := testtls.NewAuthority(t)
	pair := ca.Issue(t, "localhost")
	from := headersFrom(t, "127.0.0.1/32")
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		from(cfg)
		cfg.TLS = &tls.Config{Certificates: []tls.Certificate{pair.Cert}}
	})
	plain := proxytest.Dial(t, p.Addr)
	plain.WriteRaw(proxyHeader(t, 2, "203.0.113.7:4711"))
	nc := tls.Client(plain.Conn, &tls.Config{RootCAs: ca.Pool, ServerName: "localhost"})
	c := &proxytest.Conn{T: t, Conn: nc, In: bufio.NewReader(nc)}
	c.Lock("job 600")
	if got := c.Do("LOCKINFO job"); !strings.Contains(got, "203.0.113.7:4711") {
		t.Errorf("LOCKINFO: %q", got)
	}
	if _, err := tls.Dial("tcp", p.Addr, &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("TLS without the header was served")
	}
}

func TestProxyProtocolNetworks(t *testing.T) {
	const example = "; want for example 10.0.0.0/8 or 192.168.1.7"
	for list, want := range map[string]string{
		"10.0.0.0/8":                     "[10.0.0.0/8]",
		" 10.1.2.3/8 , ::1,192.168.0.1 ": "[10.0.0.0/8 ::1/128 192.168.0.1/32]",
		"::ffff:10.0.0.1":                "[10.0.0.1/32]",
		"":                               `not a network: ""` + example,
		"10.0.0.0/33":                    `not a network: "10.0.0.0/33"` + example,
		"localhost":                      `not a network: "localhost"` + example,
	} {
		networks, err := proxy.ParseNetworks(list)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			var texts []string
			for _, n := range networks {
				texts = append(texts, n.String())
			}
			got = "[" + strings.Join(texts, " ") + "]"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", list, got, want)
		}
	}
}
