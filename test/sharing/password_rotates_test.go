package sharing_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/internal/upstream"
	"lockproxy/passthrough"
	"lockproxy/proxy"
)

// rotation is an upstream whose password for the proxy's user changes.
type rotation struct {
	t       *testing.T
	servers []*testredis.Server
	url     string // without a login
	used    *upstream.Upstream
	next    atomic.Pointer[string] // the password that is told once one is refused
	p       *proxytest.Proxy
}

func (r *rotation) login(password string) string {
	return strings.Replace(r.url, "://", "://app:"+password+"@", 1)
}

// start has the servers accept the first password, and a proxy log in by it.
func (r *rotation) start(password string) {
	r.user("on", ">"+password, "~*", "&*", "+@all")
	r.p = proxytest.Start(r.t, r.login(password), func(cfg *proxy.Config) {
		cfg.HomeIdle, cfg.Dedicated, r.used = time.Millisecond, false, cfg.Upstream
		r.used.OnRefused(func() {
			if next := r.next.Load(); next != nil {
				r.renew(*next)
			}
		})
	})
}

func (r *rotation) user(rules ...string) {
	r.t.Helper()
	for _, server := range r.servers {
		if got := server.Ask(append([]string{"ACL", "SETUSER", "app"}, rules...)...); got != "+OK" {
			r.t.Fatal(got)
		}
	}
}

// renew tells the proxy another password.
func (r *rotation) renew(password string) {
	next, err := upstream.Parse(r.login(password))
	if err != nil {
		r.t.Error(err)
		return
	}
	r.used.Renew(next)
}

// wantNoRefusals fails if the servers have refused anything.
func (r *rotation) wantNoRefusals() {
	r.t.Helper()
	for _, server := range r.servers {
		if got := server.Ask("ACL", "LOG"); got != "*0" {
			r.t.Errorf("%s: ACL LOG: %s", server.Addr(), got)
		}
	}
}

// The proxy logs in by the password in use wherever it does: when a connection that was open before
// serves a client with a database or a name of its own, when a client resets its connection, and
// when a connection goes from one client to the next. Redis refuses none of these logins.
func TestEveryLoginIsByThePasswordInUse(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		start   func(t *testing.T) *rotation
		setting string // a client's connection is told what a new one is not
	}{
		{"one server", func(t *testing.T) *rotation {
			server := testredis.Start(t)
			return &rotation{t: t, servers: []*testredis.Server{server}, url: server.URL()}
		}, "SELECT 3"},
		{"Sentinels", func(t *testing.T) *rotation {
			g := testredis.StartGroup(t, testredis.GroupOptions{Replicas: 1, Sentinels: 1})
			return &rotation{t: t, servers: g.Servers[:1], url: g.URL()}
		}, "SELECT 3"},
		{"cluster", func(t *testing.T) *rotation {
			c := testredis.StartCluster(t, 2, 0)
			return &rotation{t: t, servers: c.Nodes, url: c.URL()}
		}, "CLIENT SETNAME worker"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := test.start(t)
			r.start("one")
			stats := func() passthrough.Stats { return r.p.Server.Stats().Connections }
			var clients []*proxytest.Conn
			for range 4 {
				c := proxytest.Dial(t, r.p.Addr)
				c.Expect(test.setting, "+OK\r\n")
				c.Expect("SET k v", "+OK\r\n")
				clients = append(clients, c)
			}
			testwait.Until(t, "the clients share connections, and others are open for them",
				func() bool { return stats().Homes == 0 && stats().Spares > 0 })

			r.user(">two")
			r.renew("two")
			r.user("<one")
			transaction := func(c *proxytest.Conn) {
				t.Helper()
				c.Expect("WATCH k", "+OK\r\n")
				c.Expect("UNWATCH", "+OK\r\n")
				c.Expect("GET k", wire.Bulk("v"))
			}
			for _, c := range clients {
				transaction(c)
			}
			for _, c := range clients {
				c.Expect("RESET", "+RESET\r\n")
				c.Expect(test.setting, "+OK\r\n")
				transaction(c)
			}
			if !strings.Contains(r.url, "cluster") { // there no connection is reset for the next
				reused := stats().Reused
				testwait.Until(t, "a connection goes from one client to the next", func() bool {
					c := proxytest.Dial(t, r.p.Addr)
					defer c.Close()
					c.Expect(test.setting, "+OK\r\n")
					transaction(c)
					return stats().Reused > reused
				})
			}
			r.wantNoRefusals()

			// Redis refuses the password in use before the proxy is told another one.
			three := "three"
			r.next.Store(&three)
			r.user(">three", "<two")
			for _, c := range clients {
				c.Expect("RESET", "+RESET\r\n")
				c.Expect(test.setting, "+OK\r\n")
				transaction(c)
			}
		})
	}
}

// Of two proxies, one has started before the password changed and one since. They find the deadlock
// of two clients that have not logged in.
func TestDeadlockIsFoundAfterTheRotation(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	r := &rotation{t: t, servers: []*testredis.Server{server}, url: server.URL()}
	r.start("first")
	r.user(">second")
	r.renew("second")
	r.user("<first")
	later := proxytest.Start(t, r.login("second"), nil)
	anna, ben := proxytest.Dial(t, r.p.Addr), proxytest.Dial(t, later.Addr)
	anna.Lock("a 600 OWNER anna")
	ben.Lock("b 600 OWNER ben")
	anna.Send("LOCK b 600 OWNER anna WAIT 0")
	proxytest.AwaitWaiters(t, r.p, "b", 1)
	ben.Expect("LOCK a 600 OWNER ben WAIT 0", `-DEADLOCK "ben" waits for "a", held by "anna", `+
		`who waits for "b", held by "ben":…`)
}
