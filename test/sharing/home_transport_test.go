package sharing_test

import (
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testtls"
	"lockproxy/internal/testwait"
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
	for _, up := range transports(t) {
		for _, dedicated := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s dedicated=%v", up.name, dedicated), func(t *testing.T) {
				testNamedClients(t, proxytest.Start(t, up.url, func(cfg *proxy.Config) {
					up.trust(cfg)
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
	for i := range 3 * len(needsHome) {
		c := proxytest.Dial(t, p.Addr)
		c.Expect(fmt.Sprint("CLIENT SETNAME name-", i), "+OK\r\n")
		c.Do("CLIENT SETINFO LIB-NAME redis-py") // before Redis 7.2 it is refused
		clients = append(clients, c)
	}
	for round := range 3 {
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
			c.Expect("CLIENT GETNAME", proxytest.Bulk(fmt.Sprint("name-", i)))
		}
	}
}

// transport is an upstream, and how the proxy gets there.
type transport struct {
	name, url string
	trust     func(*proxy.Config)
}

// transports are a server, a group with a Sentinel and a cluster, by all transports.
func transports(t *testing.T) (all []transport) {
	ca := testtls.NewAuthority(t)
	pair := ca.Issue(t, "localhost")
	certificates := []string{"--tls-cert-file", pair.CertFile, "--tls-key-file", pair.KeyFile,
		"--tls-ca-cert-file", ca.File, "--tls-auth-clients", "no"}
	socket := filepath.Join(t.TempDir(), "redis.sock")
	port, sentinelPort := testredis.FreePort(t), testredis.FreePort(t)
	server := testredis.Start(t, append(certificates, "--tls-port", strconv.Itoa(port),
		"--tls-replication", "yes", "--unixsocket", socket)...)
	testredis.StartSentinel(t, fmt.Sprint("127.0.0.1:", port),
		append(certificates, "--tls-port", strconv.Itoa(sentinelPort), "--tls-replication", "yes")...)
	cluster, addrs := testredis.StartTLSCluster(t, 3, certificates...)
	plain := func(*proxy.Config) {}
	trusting := proxytest.UpstreamTLS(func(cfg *tls.Config) { cfg.RootCAs = ca.Pool })
	return []transport{
		{"tcp", server.URL(), plain},
		{"unix", "unix://" + socket, plain},
		{"tls", fmt.Sprint("rediss://127.0.0.1:", port), trusting},
		{"sentinel tls", fmt.Sprintf("rediss+sentinel://127.0.0.1:%d/mymaster", sentinelPort), trusting},
		{"cluster", cluster.URL(), plain},
		{"cluster tls", "rediss+cluster://" + strings.Join(addrs, ","), trusting},
	}
}
