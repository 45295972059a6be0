package relay_test

import (
	"fmt"
	"net/netip"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// Requests that a client sends while one of its waits for an upstream connection, or for an answer,
// are answered, too, though nothing follows. An event loop would see to that; none reads a client
// whose connection begins with a PROXY header, or that comes by a Unix socket.
func TestRequestsBehindOneThatWaits(t *testing.T) {
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.StartBy(t, testredis.TCP, "redis://"+link.Addr(), func(cfg *proxy.Config) {
		cfg.Dedicated = false
		cfg.ProxyProtocolFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	connect := func() *proxytest.Conn {
		c := proxytest.Dial(t, p.Addr)
		c.WriteRaw("PROXY TCP4 192.0.2.1 192.0.2.2 1000 2000\r\n")
		return c
	}
	c := connect()
	for _, later := range []string{"ECHO later", "MULTI"} {
		c.Expect("GET a", "$-1\r\n")
		link.Hold()
		link.Cut()
		testwait.Until(t, "all connections are lost", func() bool {
			left := p.Server.Stats().Connections
			return left.Lanes+left.Homes == 0
		})
		c.Send("GET a")
		proxytest.AwaitRead(t, c)
		c.Send(later)
		link.Release()
		c.WantReply("$-1\r\n")
		c.Reply()
	}
	c.Expect("EXEC", "*0\r\n")

	// The beginning of a request, then as much as the proxy holds: which command it is was not known
	// yet when the proxy last looked, and what fills its buffer is not one large request.
	const locks, held = 4000, 72 << 10
	var later []byte
	for i := range locks {
		later = wire.Append(later, "LOCK", fmt.Sprint("later:", i), "600")
	}
	for _, cut := range []int{1, 6, 10, 20} {
		c := connect()
		c.Expect("GET a", "$-1\r\n")
		link.Hold()
		c.WriteRaw("GET a\r\nAUTH x\r\n" + string(later[:cut])) // the login waits for the reply
		proxytest.AwaitRead(t, c)
		c.Write(later[cut:held])
		proxytest.AwaitRead(t, c)
		link.Release()
		c.WantReply("$-1\r\n")
		if got := c.Reply(); got[0] != '-' {
			t.Errorf("AUTH: %q", got)
		}
		go c.Write(later[held:]) // ends when it is read, or with the connection
		for i := range locks {
			if got := c.Reply(); got[0] != ':' && got != "$-1\r\n" {
				t.Fatalf("cut at %d: LOCK %d is answered %q", cut, i, got)
			}
		}
	}
}
