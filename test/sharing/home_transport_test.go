package sharing_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// needsHome are requests that need a connection of the client's own, with their replies.
var needsHome = []struct{ say, replies []string }{
	{[]string{"MULTI", "INCR {job}n", "EXEC"}, []string{"+OK\r\n", "+QUEUED\r\n", "*1\r\n:…"}},
	{[]string{"WATCH {job}k", "UNWATCH"}, []string{"+OK\r\n", "+OK\r\n"}},
	{[]string{"RPUSH {job}l x", "BLPOP {job}l 0"}, []string{":1\r\n", "*2\r\n…"}},
	{[]string{"SUBSCRIBE news", "UNSUBSCRIBE"}, []string{"*3\r\n…", "*3\r\n…"}},
	{[]string{"FENCE {job} 1 GET {job}"}, []string{"-FENCED …"}},
	{[]string{"LOCK {job} 600", "UNLOCK {job}"}, []string{":…", ":1\r\n"}},
	{[]string{"CLIENT GETNAME"}, []string{"…"}},
	{[]string{"SELECT 0"}, []string{"+OK\r\n"}},
}

// Clients with a name lose their homes while they need none, and get others when they do, by every
// transport: with TLS an event loop can neither read nor write those.
func TestNamedClientsGetAnotherHome(t *testing.T) {
	for name, url := range upstreamsByAllTransports(t) {
		for _, dedicated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s dedicated=%v", name, dedicated), func(t *testing.T) {
				testNamedClients(t, proxytest.Start(t, url, func(cfg *proxy.Config) {
					cfg.Dedicated = dedicated
					if !dedicated {
						cfg.HomeIdle = 10 * time.Millisecond
					}
				}), !dedicated)
			})
		}
	}
}

func testNamedClients(t *testing.T, p *proxytest.Proxy, losesHomes bool) {
	var clients []*proxytest.Conn
	for i := range 2 * len(needsHome) {
		c := proxytest.Dial(t, p.Addr)
		c.Expect(fmt.Sprint("CLIENT SETNAME name-", i), "+OK\r\n")
		c.Do("CLIENT SETINFO LIB-NAME redis-py") // before Redis 7.2 it is refused
		clients = append(clients, c)
	}
	for round := range 2 { // so each kind of request comes both in a pipeline and alone
		testwait.Until(t, "no client has a home", func() bool {
			for _, c := range clients {
				c.Expect("GET {job}k", "$-1\r\n")
			}
			return !losesHomes || p.Server.Stats().Connections.Homes == 0
		})
		for i, c := range clients {
			asks := needsHome[(i+round)%len(needsHome)]
			var say []string
			for _, request := range asks.say {
				say = append(say, strings.ReplaceAll(request, "{job}", fmt.Sprintf("{%d-%d}", round, i)))
			}
			if i%2 == 0 {
				c.Send(say...)
				continue
			}
			for n, request := range say {
				c.Expect(request, asks.replies[n])
			}
		}
		for i, c := range clients {
			for _, want := range needsHome[(i+round)%len(needsHome)].replies {
				if i%2 == 1 {
					break // it has them
				}
				prefix, _ := strings.CutSuffix(want, "…")
				if got := c.Reply(); !strings.HasPrefix(got, prefix) {
					t.Errorf("client %d: got %q, want %q", i, got, want)
				}
			}
			c.Expect("CLIENT GETNAME", wire.Bulk(fmt.Sprint("name-", i)))
		}
	}
}

// upstreamsByAllTransports are a server, a group with Sentinels and a cluster.
func upstreamsByAllTransports(t *testing.T) map[string]string {
	urls := map[string]string{}
	for _, by := range []testredis.Transport{testredis.TCP, testredis.TLS, testredis.Unix} {
		urls["server by "+string(by)] = testredis.StartBy(t, by).URL()
	}
	for _, by := range []testredis.Transport{testredis.TCP, testredis.TLS} {
		urls["cluster by "+string(by)] = testredis.StartClusterBy(t, by, 3, 0).URL()
	}
	urls["group by tls"] = testredis.StartGroupBy(t, testredis.TLS, testredis.GroupOptions{
		Replicas: 1, Sentinels: 1}).URL()
	return urls
}
