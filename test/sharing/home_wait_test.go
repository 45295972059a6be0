package sharing_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// WAIT covers a client's writes through a home that has been
// closed since, if it has no other connection.
func TestWaitAfterAHome(t *testing.T) {
	server := testredis.Start(t)
	replica := testredis.StartReplicas(t, server, 1)[0]
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.HomeIdle = false, 50*time.Millisecond
	})
	c := proxytest.Dial(t, p.Addr)
	writeByHome(c)
	c.Expect("WAIT 1 60000", ":1\r\n")
	replica.Pause()
	writeByHome(c)
	testwait.Until(t, "the client's home is closed", func() bool {
		return p.Server.Stats().Connections.Homes == 0
	})
	c.Expect("WAIT 1 50", ":0\r\n")
	replica.Resume()
	c.Expect("WAIT 1 60000", ":1\r\n")
}

// writeByHome writes by the client's home, where its transactions run.
func writeByHome(c *proxytest.Conn) {
	c.Expect("MULTI", "+OK\r\n")
	c.Expect("SET a 1", "+QUEUED\r\n")
	c.Expect("EXEC", "*1\r\n+OK\r\n")
}

// After the loss of the home through which a client wrote, it
// is not told that its writes have arrived.
func TestWaitAfterALostHome(t *testing.T) {
	server := testredis.Start(t)
	replica := testredis.StartReplicas(t, server, 1)[0]
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.Start(t, "redis://"+link.Addr(), func(cfg *proxy.Config) {
		cfg.Dedicated = false
	})
	// its end tells that the network was lost, not one client killed
	proxytest.OpenLane(t, p.Addr, "SELECT 3")
	c := proxytest.Dial(t, p.Addr)
	replica.Pause()
	writeByHome(c)
	testwait.Until(t, "those that have opened the lane have left", func() bool {
		return p.Server.Stats().Connections.Homes == 1
	})
	link.Cut()
	testwait.Until(t, "the proxy has noticed the loss", func() bool {
		return p.Server.Stats().Connections.Homes == 0
	})
	if got := c.Do("WAIT 1 50"); !strings.HasPrefix(got, "-UPSTREAM a connection") {
		t.Errorf("WAIT says %q although the outcome of the write is unknown", got)
	}
	replica.Resume()
}
