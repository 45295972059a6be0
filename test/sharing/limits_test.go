package sharing_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// watchLimits makes the proxy watch its upstream's limits, and returns when it knows them.
func watchLimits(t *testing.T, p *proxytest.Proxy, admin *proxytest.Conn) {
	t.Helper()
	admin.Expect("CONFIG RESETSTAT", "+OK\r\n") // Valkey 9.1 has asked itself
	checkUpstream(t, p)
	asksForLimits(t, admin)
	first, second := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	defer first.Close()
	defer second.Close()
	testwait.Until(t, "clients share no connection", func() bool {
		id := strings.Trim(first.Do("CLIENT ID"), ":\r\n") // by its home
		first.Do("ECHO a")
		return strings.Contains(second.Do("CLIENT LIST ID "+id), " cmd=echo ")
	})
	p.Shares = false // limits are what the tests that wait for this set
}

// asksForLimits returns when the proxy has asked for the limits since CONFIG RESETSTAT.
func asksForLimits(t *testing.T, admin *proxytest.Conn) {
	t.Helper()
	testwait.Until(t, "the proxy asks for the limits", func() bool {
		return looked.MatchString(admin.Do("INFO commandstats"))
	})
}

// looked matches the count of the three questions of a look, or of more.
var looked = regexp.MustCompile(`cmdstat_config\|get:calls=([3-9]|\d\d)`)

// checkUpstream makes the proxy check its upstream until the test ends.
func checkUpstream(t *testing.T, p *proxytest.Proxy) {
	ctx, stop := context.WithCancel(proxytest.Ctx)
	checked := make(chan struct{})
	go func() { defer close(checked); p.Server.CheckUpstream(ctx) }()
	t.Cleanup(func() { stop(); <-checked })
}

// The limits are looked at though the upstream gives out no locks, for want of replicas.
func TestLimitsOfAnUpstreamWithoutReplicas(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.Locks.MinReplicas = 1 })
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("CONFIG RESETSTAT", "+OK\r\n")
	checkUpstream(t, p)
	asksForLimits(t, admin)
}

// An upstream that refuses INFO is asked PING from then on: its ACL LOG would fill.
func TestLooksAtAnUpstreamThatRefusesInfo(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	server.Ask("ACL", "SETUSER", "few", "on", ">pw", "~*", "&*", "+@all", "-info")
	p := proxytest.Start(t, "redis://few:pw@"+server.Addr(), nil)
	checkUpstream(t, p)
	pings := regexp.MustCompile(`cmdstat_ping:calls=([3-9]|\d\d)`) // two by the first look
	testwait.Until(t, "the proxy looks again", func() bool {
		return pings.MatchString(server.Ask("INFO", "commandstats"))
	})
}

// A script that takes long when the proxy asks for the limits does not make it give up.
func TestLimitsOfABusyUpstream(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--timeout", "300", "--busy-reply-threshold", "1")
	link := testredis.StartLink(t, server.Addr())
	p := proxytest.Start(t, "redis://"+link.Addr(), nil)
	script, admin := proxytest.Dial(t, server.Addr()), proxytest.Dial(t, server.Addr())
	admin.Expect("CONFIG RESETSTAT", "+OK\r\n")
	script.WriteRaw("EVAL 'while true do end' 0\r\n")
	testwait.Until(t, "the upstream is busy", func() bool {
		return strings.HasPrefix(admin.Do("GET k"), "-BUSY")
	})
	link.HoldReplies()
	checkUpstream(t, p)
	testwait.Until(t, "the proxy is refused", link.Holding)
	link.Release()
	if got := admin.Do("SCRIPT KILL"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	asksForLimits(t, admin)
}

// Where Redis closes clients that make it hold much, only the client responsible is closed.
func TestUpstreamsLimitsForClients(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"client-output-buffer-limit", "maxmemory-clients"} {
		t.Run(limit, func(t *testing.T) {
			value := map[string]string{"client-output-buffer-limit": "normal 1mb 1mb 1",
				"maxmemory-clients": "4mb"}[limit]
			server := testredis.Start(t, "--"+limit, value)
			p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
				cfg.Dedicated, cfg.UpstreamConns = false, 1
			})
			admin := proxytest.Dial(t, server.Addr())
			admin.Send("SET big " + strings.Repeat("x", 200000))
			if got := admin.Reply(); got != "+OK\r\n" {
				t.Fatal(got)
			}
			watchLimits(t, p, admin)
			var others []*proxytest.Conn
			for range 10 {
				others = append(others, proxytest.SharedClient(t, p.Addr))
			}
			for range 3 {
				for _, c := range others {
					c.Send("GET big")
				}
				for i, c := range others {
					if got := c.Reply(); len(got) != 200011 && len(got) != 200010 {
						t.Fatalf("client %d: %.80q", i, got)
					}
				}
			}
			hog := proxytest.SharedClient(t, p.Addr)
			hog.WriteRaw(strings.Repeat("*2\r\n$3\r\nGET\r\n$3\r\nbig\r\n", 300))
			for range 20 {
				for i, c := range others {
					if got := c.Do("SET small x"); got != "+OK\r\n" {
						t.Fatalf("client %d next to one that asks for 60 MB: %q", i, got)
					}
				}
			}
			if st := p.Server.Stats().Connections; st.Shared != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}
