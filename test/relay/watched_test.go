package relay_test

import (
	"net/netip"
	"testing"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
	"lockproxy/proxy"
)

// A client whose request waits for an upstream connection is read meanwhile, so that its end is
// noticed. What it sends then is answered, too, though nothing follows. An event loop would see to
// that; none reads a client whose connection begins with a PROXY header, or that comes by TLS or a
// Unix socket.
func TestRequestsBehindOneThatWaitsForAConnection(t *testing.T) {
	server := testredis.Start(t)
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.StartBy(t, testredis.TCP, "redis://"+link.Addr(), func(cfg *proxy.Config) {
		cfg.Dedicated = false
		cfg.ProxyProtocolFrom = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	})
	c := proxytest.Dial(t, p.Addr)
	c.WriteRaw("PROXY TCP4 192.0.2.1 192.0.2.2 1000 2000\r\n")
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
		proxytest.AwaitRead(t, c)
		link.Release()
		c.WantReply("$-1\r\n")
		c.Reply()
	}
	c.Expect("EXEC", "*0\r\n")
}
