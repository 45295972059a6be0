package sharing_test

import (
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// Redis no longer accepts the password that --upstream has. That holds for all clients that come
// later, though connections are shared that were logged in before. Those that came before go on.
func TestStalePasswordHoldsForNewClients(t *testing.T) {
	t.Parallel()
	for _, change := range []string{"ACL SETUSER app resetpass >new", "ACL SETUSER app off"} {
		for _, cluster := range []bool{false, true} {
			t.Run(change, func(t *testing.T) {
				t.Parallel()
				var nodes []*testredis.Server
				var url string
				if cluster {
					c := testredis.StartCluster(t, 3, 0)
					nodes, url = c.Nodes, c.URL()
				} else {
					server := testredis.Start(t)
					nodes, url = []*testredis.Server{server}, server.URL()
				}
				all := func(command string) {
					for _, node := range nodes {
						proxytest.Dial(t, node.Addr()).Expect(command, "+OK\r\n")
					}
				}
				all("ACL SETUSER app on >old ~* &* +@all")
				p := proxytest.Start(t, strings.Replace(url, "://", "://app:old@", 1),
					func(cfg *proxy.Config) { cfg.Dedicated = false })
				before := proxytest.SharedClient(t, p.Addr)
				before.Expect("SET a b", "+OK\r\n")
				all(change)
				testwait.Until(t, "a new client is refused", func() bool {
					c := proxytest.Dial(t, p.Addr)
					defer c.Close()
					return strings.HasPrefix(c.Do("GET a"), "-")
				})
				for range 5 {
					c := proxytest.Dial(t, p.Addr)
					for _, command := range []string{"GET a", "SET a c", "GET a", "MULTI", "LOCK l 600"} {
						if got := c.Do(command); !strings.Contains(got, "WRONGPASS") {
							t.Errorf("%s: %q", command, got)
						}
					}
				}
				before.Expect("GET a", wire.Bulk("b")) // as directly
			})
		}
	}
}
