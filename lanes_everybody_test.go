package lockproxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// Unless told otherwise the proxy can serve every client that is connected after its password has been changed, whatever each does, all at
// once: as Redis does.
func TestPasswordChangedWhileEverybodyIsBusy(t *testing.T) {
	const clients = 60
	for _, login := range []string{"AUTH ann old", ""} {
		server := testredis.Start(t)
		p := startProxy(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated, cfg.MaxClients = false, 20 })
		p.server.SetMaxClients(clients)
		admin := dial(t, server.Addr())
		admin.expect("ACL SETUSER ann on >old ~* &* +@all", "+OK\r\n")
		var all []*rawConn
		for range clients {
			c := dial(t, p.addr)
			if login != "" {
				c.expect(login, "+OK\r\n")
			}
			c.expect("GET a", "$-1\r\n")
			all = append(all, c)
		}
		time.Sleep(50 * time.Millisecond)
		admin.expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
		admin.expect("CONFIG SET requirepass new", "+OK\r\n")
		for i, c := range all {
			switch i % 4 {
			case 0:
				c.expect("SUBSCRIBE c", "*3…")
			case 1:
				c.expect("MULTI", "+OK\r\n")
				c.expect("ECHO a", "+QUEUED\r\n")
			case 2:
				c.send(fmt.Sprintf("BLPOP l%d 10", i))
			case 3:
				c.expect("SELECT 2", "+OK\r\n")
				c.expect("CLIENT ID", ":…")
			}
		}
		eventually(t, 5*time.Second, "all are blocked", func() bool {
			return strings.Count(admin.do("CLIENT LIST"), "cmd=blpop") == clients/4
		})
		for i, c := range all {
			switch i % 4 {
			case 0:
				c.expect("UNSUBSCRIBE c", "*3…")
			case 1:
				c.expect("EXEC", "*1\r\n$1\r\na\r\n")
			case 2:
				admin.do(fmt.Sprintf("RPUSH l%d x", i))
				c.reply()
			}
			c.expect("GET a", "$-1\r\n")
		}
	}
}

// Who has come before there was a password is not asked for one, though he had asked nothing yet; who comes later is.
func TestConnectedBeforeThereWasAPassword(t *testing.T) {
	for _, dedicated := range []bool{false, true} {
		server := testredis.Start(t)
		p := startProxy(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = dedicated })
		admin := dial(t, server.Addr())
		direct, through := dial(t, server.Addr()), dial(t, p.addr)
		eventually(t, 5*time.Second, "the client is there", func() bool { return p.server.Stats().Connections.Homes == 1 })
		time.Sleep(20 * time.Millisecond)
		admin.expect("CONFIG SET requirepass new", "+OK\r\n")
		laterDirect, laterThrough := dial(t, server.Addr()), dial(t, p.addr)
		for _, command := range []string{"GET a", "HELLO 3", "MULTI", "PING", "EXEC", "ACL WHOAMI"} {
			if want, got := shown(command, direct.do(command)), shown(command, through.do(command)); got != want || got[0] == '-' {
				t.Errorf("dedicated %v, %s: got %q, want %q", dedicated, command, got, want)
			}
			if want, got := shown(command, laterDirect.do(command)), shown(command, laterThrough.do(command)); got != want || got[0] != '-' {
				t.Errorf("dedicated %v, who came later, %s: got %q, want %q", dedicated, command, got, want)
			}
		}
	}
}

// impatient starts a proxy of a Redis that closes clients which are silent for 3 s, and knows a user ann.
func impatient(t *testing.T) (server *testredis.Server, p *testProxy, admin *rawConn) {
	server = testredis.Start(t, "--timeout", "3")
	p = startProxy(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = false })
	admin = dial(t, server.Addr())
	looksAtLimits(t, p, admin)
	admin.expect("ACL SETUSER ann on >old ~* &* +@all", "+OK\r\n")
	return server, p, admin
}

// A login is not given up where the upstream takes long to answer.
func TestLoginAtASlowUpstream(t *testing.T) {
	t.Parallel()
	server, p, admin := impatient(t)
	direct, through := dial(t, server.Addr()), dial(t, p.addr)
	direct.expect("AUTH ann old", "+OK\r\n")
	through.expect("AUTH ann old", "+OK\r\n")
	admin.expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
	time.Sleep(800 * time.Millisecond)
	server.Pause()
	time.Sleep(1500 * time.Millisecond)
	server.Resume()
	for _, c := range []*rawConn{direct, through} {
		c.expect("PING", "+PONG\r\n")
		c.expect("SUBSCRIBE c", "*3…")
	}
}
