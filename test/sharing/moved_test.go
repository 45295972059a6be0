package sharing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// One address in front of two servers, as a name, a balancer and an address that moves are: new
// connections lead to another server, and the former one goes on to answer on those that it has.

// movable is a proxy behind which that can happen.
type movable struct {
	*proxytest.Proxy
	link     *badlink.Link
	old, new *testredis.Server
	log      *testredis.LogBuffer
	login    []string // of all clients
}

func startMovable(t *testing.T, login []string, args ...string) *movable {
	t.Helper()
	m := &movable{old: testredis.Start(t, args...), new: testredis.Start(t, args...),
		log: &testredis.LogBuffer{}, login: login}
	for _, server := range []*testredis.Server{m.old, m.new} {
		for _, command := range []string{"ACL SETUSER ann on >pw ~* &* +@all -@dangerous",
			"ACL SETUSER bob on >pw ~* &* +@all"} {
			if got := server.Ask(strings.Fields(command)...); got != "+OK" {
				t.Fatalf("%s: %q", command, got)
			}
		}
	}
	m.link = testredis.StartLink(t, m.old.Addr())
	m.Proxy = proxytest.Start(t, "redis://"+m.link.Addr(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.UpstreamConns = false, 4
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: m.log})
	})
	return m
}

// client returns one that shares connections with others.
func (m *movable) client(t *testing.T) *proxytest.Conn {
	t.Helper()
	c := proxytest.Dial(t, m.Addr)
	for _, command := range m.login {
		c.Expect(command, "+OK\r\n")
	}
	return c
}

// noticed returns when the proxy knows that its address leads elsewhere: it looks once a second while
// clients come.
func (m *movable) noticed(t *testing.T) {
	t.Helper()
	testwait.Until(t, "the proxy knows", func() bool {
		c := proxytest.Dial(t, m.Addr)
		c.Expect("PING", "+PONG\r\n")
		c.Close()
		return strings.Contains(m.log.String(), "lead to another server")
	})
}

// share returns when clients share connections to server.
func share(server *testredis.Server, clients ...*proxytest.Conn) {
	for _, c := range clients {
		testwait.Until(c.T, "they share a connection", func() bool {
			id := strings.Trim(c.Do("CLIENT ID"), ":\r\n") // by its home
			for _, c := range clients {
				c.Expect("PING", "+PONG\r\n")
			}
			return strings.Contains(server.Ask("CLIENT", "LIST", "ID", id), "cmd=client|id")
		})
	}
}

// write has a client write n times in each of the ways that its requests can go.
func write(c *proxytest.Conn, key string, n int) {
	c.T.Helper()
	for range n {
		c.Expect("INCR "+key, ":…")
		c.Expect("MULTI", "+OK\r\n")
		c.Expect("INCR "+key, "+QUEUED\r\n")
		c.Expect("EXEC", "*1\r\n:…")
	}
}

// Both servers take writes. All requests of a client go to one of them, and clients that come later
// share connections to the new one.
func TestAddressLeadsElsewhere(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		login []string
		args  []string
	}{
		{"default user", nil, nil},
		{"user", []string{"AUTH bob pw"}, nil},
		{"user who may not ask INFO", []string{"AUTH ann pw"}, nil},
		{"without INFO", nil, []string{"--rename-command", "INFO", "no-info"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := startMovable(t, test.login, test.args...)
			before := []*proxytest.Conn{m.client(t), m.client(t)}
			share(m.old, before...)
			for _, c := range before {
				write(c, "n", 10)
			}
			m.link.Lead(m.new.Addr())
			m.noticed(t)
			after := []*proxytest.Conn{m.client(t), m.client(t)}
			for _, c := range after {
				write(c, "n", 10)
			}
			for _, c := range before {
				write(c, "n", 10)
			}
			if got := m.old.Ask("GET", "n"); got != "80" {
				t.Errorf("the old server has %q", got)
			}
			if got := m.new.Ask("GET", "n"); got != "40" {
				t.Errorf("the new server has %q", got)
			}
			share(m.new, after...)
			for _, c := range append(before, after...) {
				write(c, "n", 1)
			}
			if old, new := m.old.Ask("GET", "n"), m.new.Ask("GET", "n"); old != "84" || new != "44" {
				t.Errorf("the servers have %q and %q", old, new)
			}
		})
	}
}

// The old server becomes a replica of the new one. The client that has a connection of its own to it
// is refused, as it would be directly, and others at most until the first refusal is known.
func TestOldServerBecomesAReplica(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		args []string
	}{
		{"that says which it is", nil},
		{"that does not", []string{"--rename-command", "INFO", "no-info",
			"--rename-command", "CLIENT", "no-client"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := startMovable(t, nil, test.args...)
			stays, follows := proxytest.Dial(t, m.Addr), proxytest.Dial(t, m.Addr)
			stays.Expect("WATCH a", "+OK\r\n") // by a home
			stays.Expect("UNWATCH", "+OK\r\n")
			testwait.Until(t, "they share a connection, and the other has no home", func() bool {
				follows.Close() // it has got one if the lane was not open yet
				follows = proxytest.Dial(t, m.Addr)
				for _, c := range []*proxytest.Conn{stays, follows} {
					c.Expect("SET a 1", "+OK\r\n")
				}
				now := m.Server.Stats().Connections
				return now.Shared == 2 && now.Homes == 1
			})
			m.link.Lead(m.new.Addr())
			host, port, _ := strings.Cut(m.new.Addr(), ":")
			m.old.Ask("REPLICAOF", host, port)
			stays.Expect("SET a 2", "-READONLY …")
			testwait.Until(t, "the other follows", func() bool {
				return follows.Do("SET a 2") == "+OK\r\n"
			})
			for i := range 3 {
				after := proxytest.Dial(t, m.Addr)
				for range 10 {
					after.Expect(fmt.Sprintf("SET b %d", i), "+OK\r\n")
					after.Expect("MULTI", "+OK\r\n")
					after.Expect("SET c 1", "+QUEUED\r\n")
					after.Expect("EXEC", "*1\r\n+OK\r\n")
				}
			}
			stays.Expect("SET a 2", "-READONLY …")
			follows.Expect("SET a 2", "+OK\r\n")
		})
	}
}

// What the proxy does for clients on connections of its own, it does at the new server.
func TestProxysOwnConnectionsFollow(t *testing.T) {
	t.Parallel()
	m := startMovable(t, nil)
	leave := func() {
		c := proxytest.Dial(t, m.Addr)
		c.Lock("a 600 SESSION")
		c.Close()
	}
	leave()
	testwait.Until(t, "the lock is released", func() bool {
		return m.old.Ask("EXISTS", "a") == ":0"
	})
	m.link.Lead(m.new.Addr())
	m.noticed(t)
	leave()
	testwait.Until(t, "the lock is released", func() bool {
		return m.new.Ask("EXISTS", "a") == ":0"
	})
}
