package relay_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// What Redis says to a connection that it lets not in is no answer to a request: the client reads it
// once and is closed, as directly. Whether it sends something first or only later, no reply that it
// reads is to another request than its own.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	for _, by := range []testredis.Transport{testredis.TCP, testredis.Unix} {
		for _, dedicated := range []bool{false, true} {
			t.Run(fmt.Sprintf("by %s, dedicated %v", by, dedicated), func(t *testing.T) {
				t.Parallel()
				testRefusedConnections(t, by, dedicated)
			})
		}
	}
}

func testRefusedConnections(t *testing.T, by testredis.Transport, dedicated bool) {
	server := testredis.StartBy(t, by)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = dedicated })
	direct := proxytest.Dial(t, server.Addr())
	direct.Expect("CONFIG SET maxclients 1", "+OK\r\n")
	const told = "-ERR max number of clients reached\r\n"
	for range 5 {
		c := proxytest.Dial(t, p.Addr)
		c.WantReply(told)
		c.Closed()
	}
	for i := range 5 {
		c := proxytest.Dial(t, p.Addr)
		c.Send(echoes(i)...)
		// as directly, the kernel can drop what Redis has said to it, since it has sent more
		if got, err := c.TryReply(); err == nil && got != told {
			t.Errorf("it reads %q", got)
		} else if err == nil {
			c.Closed()
		}
	}
	waiting := proxytest.Dial(t, p.Addr)
	direct.Expect("CONFIG SET maxclients 1000", "+OK\r\n")
	for i, c := range []*proxytest.Conn{waiting, proxytest.SharedClient(t, p.Addr)} {
		c.Send(echoes(i)...)
		for j := range 5 {
			got, err := c.TryReply()
			if err != nil || i == 0 && got == told {
				if i > 0 {
					t.Errorf("there is room, and it reads %q, %v", got, err)
				}
				break
			}
			if want := wire.Bulk(fmt.Sprintf("z%d-%d", i, j)); got != want {
				t.Errorf("it reads %q, want %q", got, want)
			}
		}
	}
}

// With TLS Redis refuses a connection without a word, before the handshake. A client is told so when
// it asks for something.
func TestRefusedTLSConnections(t *testing.T) {
	server := testredis.StartBy(t, testredis.TLS)
	p := proxytest.Start(t, server.URL(), nil)
	direct := proxytest.Dial(t, server.Addr())
	direct.Expect("CONFIG SET maxclients 1", "+OK\r\n")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("GET a", "-UPSTREAM cannot reach "+p.Upstream+": nothing was sent, try again (TLS: …")
	direct.Expect("CONFIG SET maxclients 1000", "+OK\r\n")
	testwait.Until(t, "there is room for the client", func() bool {
		return c.Do("GET a") == "$-1\r\n"
	})
}

func echoes(i int) (commands []string) {
	for j := range 5 {
		commands = append(commands, fmt.Sprintf("ECHO z%d-%d", i, j))
	}
	return commands
}

// In front of Sentinels, where the server is asked first whether it is the master, and of a cluster,
// whose nodes are opened for their first requests, a client can live on. It never reads the reply to
// another request than its own.
func TestRefusedConnectionsNeverShift(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Sentinels", "cluster"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			var servers []*testredis.Server
			url := ""
			if kind == "cluster" {
				cluster := testredis.StartCluster(t, 3, 0)
				servers, url = cluster.Nodes, cluster.URL()
			} else {
				server := testredis.Start(t)
				sentinel := testredis.StartSentinel(t, server.Addr())
				servers, url = []*testredis.Server{server},
					"redis+sentinel://"+sentinel.Addr()+"/mymaster"
			}
			p := proxytest.Start(t, url, nil)
			proxytest.SharedClient(t, p.Addr).Expect("SET a b", "+OK\r\n")
			var admins []*proxytest.Conn
			for _, s := range servers {
				admins = append(admins, proxytest.Dial(t, s.Addr()))
			}
			limit := func(n int) {
				for _, admin := range admins {
					admin.Expect(fmt.Sprintf("CONFIG SET maxclients %d", n), "+OK\r\n")
				}
			}
			limit(1)
			var clients []*proxytest.Conn
			for range 12 {
				clients = append(clients, proxytest.Dial(t, p.Addr))
			}
			good := 0
			for round := range 4 {
				if round == 2 {
					limit(1000)
				}
				for i, c := range clients {
					c.Send(append(echoes(i), fmt.Sprintf("SETEX k%d 100 v", i))...)
					for j := range 6 {
						want := wire.Bulk(fmt.Sprintf("z%d-%d", i, j))
						if j == 5 {
							want = "+OK\r\n"
						}
						got, err := c.TryReply()
						if err != nil {
							clients[i] = proxytest.Dial(t, p.Addr)
							break
						}
						if got == want {
							good++
						} else if !strings.HasPrefix(got, "-") {
							t.Fatalf("round %d: it reads %q, want %q", round, got, want)
						}
					}
				}
			}
			if good < 12*6 {
				t.Errorf("only %d requests were served once there was room", good)
			}
		})
	}
}
