package sharing_test

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// awaitVisits returns once a visit that logs in takes no connection of its own: the lanes that two
// clients with that login use are open, and so is a connection by which Redis judges it.
func awaitVisits(t *testing.T, p *proxytest.Proxy, login string) (users []*proxytest.Conn) {
	t.Helper()
	for range 2 {
		c := proxytest.Dial(t, p.Addr)
		c.Expect(login, "+OK\r\n")
		users = append(users, c)
	}
	awaitNoHome(t, p, func(c *proxytest.Conn) {
		for _, user := range users {
			user.Expect("PING", "+PONG\r\n")
		}
		c.Expect(login, "+OK\r\n")
	})
	return users
}

// awaitNoHome returns once a visit takes no connection of its own.
func awaitNoHome(t *testing.T, p *proxytest.Proxy, visit func(c *proxytest.Conn)) {
	t.Helper()
	testwait.Until(t, "a visit takes no connection of its own", func() bool {
		opened := p.Server.Stats().Connections.Opened
		c := proxytest.Dial(t, p.Addr)
		defer c.Close()
		visit(c)
		return p.Server.Stats().Connections.Opened == opened
	})
}

// A client that logs in, asks and leaves takes no connection of its own, however it logs in, and runs
// as the user that it has named, with the database and the name that it has chosen. If it needs a
// connection, that is set up so.
func TestVisitsWithALogin(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	for _, user := range []string{"ann", "bob"} {
		server.Ask("ACL", "SETUSER", user, "on", ">pw", "~"+user, "+@all")
		awaitVisits(t, p, "AUTH "+user+" pw")
	}
	for _, user := range []string{"ann", "bob"} {
		var c *proxytest.Conn
		for i, login := range [][]string{
			{"AUTH " + user + " pw"},
			{"AUTH " + user + " pw", "SELECT 3"},
			{"HELLO 2 AUTH " + user + " pw", "SELECT 3", "CLIENT SETNAME app"},
			{"HELLO 3 AUTH " + user + " pw", "CLIENT SETNAME app"},
		} {
			awaitNoHome(t, p, func(visitor *proxytest.Conn) {
				c = visitor
				for _, command := range login {
					if got := c.Do(command); got[0] == '-' {
						t.Fatalf("%s: %q", command, got)
					}
				}
				c.Expect("SET "+user+" x", "+OK\r\n")
				c.Expect("SET other x", "-NOPERM…")
			})
			c = proxytest.Dial(t, p.Addr)
			for _, command := range login {
				c.Do(command)
			}
			c.Expect("ACL WHOAMI", wire.Bulk(user))
			info := c.Do("CLIENT INFO")
			for _, want := range []string{fmt.Sprintf(" db=%d ", []int{0, 3, 3, 0}[i]),
				" name=" + []string{"", "", "app", "app"}[i] + " ", " user=" + user + " "} {
				if !strings.Contains(info, want) {
					t.Errorf("after %q CLIENT INFO lacks %q: %q", login, want, info)
				}
			}
			c.Close()
		}
	}
}

// A login that comes together with another waits until Redis has judged that one, and is judged
// then.
func TestLoginBehindALogin(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	server.Ask("ACL", "SETUSER", "ann", "on", ">pw", "~*", "+@all")
	awaitVisits(t, p, "AUTH ann pw")
	for range 10 {
		c := proxytest.Dial(t, p.Addr)
		c.WriteRaw("AUTH ann pw\r\nAUTH ann pw\r\nPING\r\n")
		for _, want := range []string{"+OK\r\n", "+OK\r\n", "+PONG\r\n"} {
			if got := c.Reply(); got != want {
				t.Fatalf("%q, want %q", got, want)
			}
		}
		c.Close()
	}
}

// A client that has a connection of its own is logged in there.
func TestLoginOfAClientWithAConnection(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	for _, user := range []string{"ann", "bob"} {
		server.Ask("ACL", "SETUSER", user, "on", ">pw", "~*", "+@all")
		awaitVisits(t, p, "AUTH "+user+" pw")
	}
	c := proxytest.Dial(t, p.Addr)
	for _, user := range []string{"ann", "bob", "ann"} {
		c.Expect("AUTH "+user+" pw", "+OK\r\n")
		c.Expect("MULTI", "+OK\r\n")
		c.Expect("ACL WHOAMI", "+QUEUED\r\n")
		c.Expect("AUTH bob pw", "+QUEUED\r\n")
		c.Expect("ACL WHOAMI", "+QUEUED\r\n")
		if got := c.Do("EXEC"); !strings.HasPrefix(got, "*3\r\n"+wire.Bulk(user)) ||
			!strings.HasSuffix(got, wire.Bulk("bob")) {
			t.Errorf("as %s: %q", user, got)
		}
		c.Expect("GET none", "$-1\r\n")
		c.Expect("ACL WHOAMI", wire.Bulk("bob"))
	}
}

// Many clients log in at the same time by the same connections. Each client with a wrong password is
// refused, and each with the right one is let in. The lanes of the former password are still open.
func TestVerdictsOfManyLogins(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("CONFIG SET requirepass secret", "+OK\r\n")
	admin.Expect("ACL SETUSER ann on >old ~* +@all", "+OK\r\n")
	proxytest.AwaitJudged(t, p)
	former := awaitVisits(t, p, "AUTH ann old")
	admin.Expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
	awaitVisits(t, p, "AUTH ann new")
	awaitNoHome(t, p, func(c *proxytest.Conn) {
		c.Expect("AUTH ann old", "-WRONGPASS…")
		c.Expect("HELLO 3 AUTH ann old", "-WRONGPASS…")
		c.Expect("AUTH ann new", "+OK\r\n")
		c.Expect("AUTH ann old", "-WRONGPASS…")
		c.Expect("GET none", "$-1\r\n")
	})
	logins := [...]struct{ login, verdict, get string }{
		{"AUTH ann old", "-WRONGPASS", "-NOAUTH"}, {"AUTH ann new", "+OK", "$-1"},
		{"HELLO 2 AUTH ann old", "-WRONGPASS", "-NOAUTH"}, {"HELLO 3 AUTH ann new", "%", "_"},
	}
	var running sync.WaitGroup
	for i := range 32 {
		running.Go(func() {
			for round := range 8 {
				l := logins[(i*i+round)%len(logins)]
				c := proxytest.Dial(t, p.Addr)
				if round%2 == 0 {
					c.Send(l.login, "GET none")
				} else {
					c.Send(l.login)
				}
				for j, want := range []string{l.verdict, l.get} {
					if j == 1 && round%2 == 1 {
						c.Send("GET none")
					}
					if got, err := c.TryReply(); !strings.HasPrefix(got, want) {
						t.Errorf("%s, reply %d: %q, %v, want %q", l.login, j, got, err, want)
					}
				}
				c.Close()
			}
		})
	}
	running.Wait()
	for _, c := range former {
		c.Expect("GET none", "$-1\r\n") // as directly
	}
	log := admin.Do("ACL LOG 1")
	if !strings.Contains(log, "\r\nauth\r\n") || !strings.Contains(log, " user=default ") {
		t.Errorf("ACL LOG: %q", log)
	}
}

// A client that has logged in and stays has a connection of its own before long: it is served when its
// password has changed, and closed when its user is deleted.
func TestLoggedInClientsThatStay(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER ann on >old ~* +@all", "+OK\r\n")
	clients := awaitVisits(t, p, "AUTH ann old")
	for range 4 {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("AUTH ann old", "+OK\r\n")
		clients = append(clients, c)
	}
	testwait.Until(t, "each has a connection", func() bool {
		return p.Server.Stats().Connections.Homes == len(clients)
	})
	admin.Expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
	for _, c := range clients {
		c.Expect("MULTI", "+OK\r\n")
		c.Expect("ACL WHOAMI", "+QUEUED\r\n")
		c.Expect("EXEC", "*1\r\n"+wire.Bulk("ann"))
	}
	admin.Expect("ACL DELUSER ann", ":1\r\n")
	for _, c := range clients {
		c.Closed()
	}
}

// homeless returns two clients that have logged in as ann, and have no connection of their own when
// change, by the administrator, has been made.
func homeless(
	t *testing.T, p *proxytest.Proxy, admin *proxytest.Conn, change ...string,
) (clients [2]*proxytest.Conn) {
	t.Helper()
	attempts := 0
	testwait.Until(t, "none has a connection before the change", func() bool {
		attempts++ // with other passwords each time: lanes of the last time can be open
		login := fmt.Sprint("AUTH ann old", attempts)
		admin.Do(fmt.Sprintf("ACL SETUSER ann reset on >old%d ~* +@all", attempts))
		awaitVisits(t, p, login)
		for i := range clients {
			clients[i] = proxytest.Dial(t, p.Addr)
		}
		opened := p.Server.Stats().Connections.Opened
		for _, c := range clients {
			c.Expect(login, "+OK\r\n")
			c.Expect("GET none", "$-1\r\n")
		}
		admin.Send(change...)
		for range change {
			admin.Reply()
		}
		if p.Server.Stats().Connections.Opened == opened {
			return true
		}
		for _, c := range clients {
			c.Close()
		}
		return false
	})
	return clients
}

// A client without a connection of its own, whose password has changed, is served on as Redis would,
// but for what needs a connection.
func TestPasswordOfHomelessClientChanges(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	clients := homeless(t, p, admin, "CONFIG RESETSTAT", "ACL SETUSER ann resetpass >new")
	clients[0].Expect("MULTI", "-UPSTREAM…")
	testwait.Until(t, "Redis has refused this, and a connection to each that stays", func() bool {
		_, stats, _ := strings.Cut(admin.Do("INFO commandstats"), "cmdstat_auth:")
		_, stats, _ = strings.Cut(stats, "failed_calls=")
		failed := 0
		fmt.Sscan(stats, &failed)
		return failed >= 3
	})
	for _, c := range clients {
		c.Expect("GET none", "$-1\r\n")
	}
	admin.Expect("ACL DELUSER ann", ":1\r\n")
	for _, c := range clients {
		c.Closed()
	}
}

// A client without a connection of its own, whose password has changed, can log in by another one,
// as directly: the former login is not needed for that. A wrong password changes nothing.
func TestHomelessClientLogsInAgain(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER bob on >pw ~* +@all", "+OK\r\n")
	for _, login := range []string{"AUTH ann new", "HELLO 3 AUTH ann new",
		"HELLO 3 AUTH ann new SETNAME app", "AUTH bob pw"} {
		clients := homeless(t, p, admin, "ACL SETUSER ann resetpass >new")
		for _, c := range clients {
			c.Expect("AUTH ann wrong",
				"-WRONGPASS invalid username-password pair or user is disabled.\r\n")
			c.Expect("HELLO 3 AUTH ann wrong", "-WRONGPASS…")
			c.Expect("GET none", "$-1\r\n")
			if got := c.Do(login); got[0] == '-' {
				t.Fatalf("%s: %q", login, got)
			}
			user := map[bool]string{true: "bob", false: "ann"}[login == "AUTH bob pw"]
			c.Expect("ACL WHOAMI", wire.Bulk(user))
			c.Expect("MULTI", "+OK\r\n")
			c.Expect("ACL WHOAMI", "+QUEUED\r\n")
			c.Expect("EXEC", "*1\r\n"+wire.Bulk(user))
		}
	}
}

// A client without a connection of its own is not served any more when its user is deleted, and closed
// before long.
func TestHomelessClientOfDeletedUser(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	for _, c := range homeless(t, p, admin, "ACL DELUSER ann") {
		io.WriteString(c.Conn, "GET none\r\n") // fails if the client has been closed before
		if got, err := c.TryReply(); err == nil && got[0] != '-' {
			t.Errorf("it is served: %q", got)
		}
		c.Closed()
	}
}
