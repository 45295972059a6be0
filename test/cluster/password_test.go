package cluster_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// A password that is set, or a default user that is switched off, holds for all clients that come
// after the proxy has asked again whether Redis lets clients in, though it has opened homes before.
func TestPasswordHoldsForNewClients(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, change string }{
		{"password", "CONFIG SET requirepass secret"},
		{"default user", "ACL SETUSER default off"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cluster := testredis.StartCluster(t, 3, 0)
			p := proxytest.Start(t, cluster.URL(), nil)
			var admins []*proxytest.Conn
			for _, node := range cluster.Nodes {
				admins = append(admins, proxytest.Dial(t, node.Addr()))
			}
			before := proxytest.Dial(t, p.Addr)
			before.Expect("SET a b", "+OK\r\n")
			testwait.Until(t, "homes are open for clients to come", func() bool {
				open := p.Server.Stats().Connections.Spares >= 4
				if !open { // with the next client the proxy tries again
					c := proxytest.Dial(t, p.Addr)
					c.Expect("PING", "+PONG\r\n")
					c.Close()
				}
				return open
			})
			for _, admin := range admins {
				admin.Expect(test.change, "+OK\r\n")
			}
			proxytest.AwaitJudged(t, p)
			for range 10 {
				c := proxytest.Dial(t, p.Addr)
				c.Expect("GET a", "-NOAUTH Authentication required.\r\n")
				c.Expect("SET a c", "-NOAUTH Authentication required.\r\n")
			}
			before.Expect("GET a", wire.Bulk("b")) // as directly
		})
	}
}
