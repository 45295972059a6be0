package sharing_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// changedLogin is one way to log in, and how that ends for others.
type changedLogin struct {
	name   string
	before string // the administrator's setup
	login  string // what the client sends; "" is nothing
	after  string // the administrator's change
	again  string // logs in after that
}

var changedLogins = []changedLogin{
	{"user", "ACL SETUSER ann on >old ~* &* +@all", "AUTH ann old",
		"ACL SETUSER ann resetpass >new", "AUTH ann new"},
	{"user by HELLO", "ACL SETUSER ann on >old ~* &* +@all", "HELLO 3 AUTH ann old",
		"ACL SETUSER ann resetpass >new", "HELLO 3 AUTH ann new"},
	{"user switched off", "ACL SETUSER ann on >old ~* &* +@all", "AUTH ann old",
		"ACL SETUSER ann off", "AUTH default new"},
	{"default user by AUTH", "CONFIG SET requirepass old", "AUTH old", "CONFIG SET requirepass new",
		"AUTH new"},
	{"default user by HELLO", "CONFIG SET requirepass old", "HELLO 2 AUTH default old",
		"ACL SETUSER default resetpass >new", "AUTH default new"},
	{"default user without a password", "PING", "", "CONFIG SET requirepass new", "AUTH new"},
	{"default user in RESP3", "PING", "HELLO 3", "ACL SETUSER default resetpass >new",
		"HELLO 3 AUTH default new"},
	{"default user whose password is taken away", "CONFIG SET requirepass old", "AUTH old",
		`CONFIG SET requirepass ""`, "PING"},
}

// afterwards is what a client does then. shown leaves out what differs by nature.
var afterwards = []string{
	"GET a", "SET b 1", "ECHO here", "ACL WHOAMI",
	"MULTI", "INCR n", "ACL WHOAMI", "EXEC",
	"SELECT 3", "SET where three", "MULTI", "GET where", "EXEC", "LPUSH l x", "BLPOP l 1",
	"GET where",
	"SELECT 4", "GET where", "SELECT 5", "GET where", "SELECT 0", "GET where", "GET a",
	"WATCH a", "GET a", "MULTI", "PING", "EXEC",
	"SUBSCRIBE c", "UNSUBSCRIBE c", "BLPOP nothing 0.01",
	"CLIENT SETNAME me", "CLIENT GETNAME", "EVAL return(redis.call('GET','a')) 0",
	"AUTH wrong wrong", "GET a", "ACL WHOAMI",
	"CLIENT ID", "GET a",
}

func shown(command, reply string) string {
	switch {
	case command == "CLIENT ID", strings.HasPrefix(command, "HELLO"):
		return reply[:1]
	}
	return reply
}

// A password is changed while its clients are connected: through the proxy they get the same
// replies as directly.
func TestPasswordChangedWhileConnected(t *testing.T) {
	t.Parallel()
	for _, l := range changedLogins {
		t.Run(l.name, func(t *testing.T) {
			alone, behind := testredis.Start(t), testredis.Start(t)
			p := sharing(t, behind, 1)
			admins := []*proxytest.Conn{proxytest.Dial(t, alone.Addr()),
				proxytest.Dial(t, behind.Addr())}
			for _, admin := range admins {
				admin.Expect("SET a value", "+OK\r\n")
				admin.Do(l.before)
			}
			direct, through := []*proxytest.Conn{}, []*proxytest.Conn{}
			for range 3 {
				direct, through = append(direct, proxytest.Dial(t, alone.Addr())),
					append(through, proxytest.Dial(t, p.Addr))
			}
			for _, c := range through {
				c.Do("CLIENT GETNAME") // opens its home, which it would not get later
			}
			same := func(i int, command string) {
				t.Helper()
				if want, got := shown(command, direct[i].Do(command)),
					shown(command, through[i].Do(command)); got != want {
					t.Fatalf("client %d, %s: got %q, want %q", i, command, got, want)
				}
			}
			for i := range direct {
				for _, command := range []string{l.login, "PING", "GET a"} {
					if command != "" {
						same(i, command)
					}
				}
			}
			if l.login == "" || l.login == "HELLO 3" {
				proxytest.AwaitJudged(t, p)
			}
			for _, admin := range admins {
				admin.WriteRaw(l.after + "\r\n")
				if got := admin.Reply(); got != "+OK\r\n" {
					t.Fatalf("%s: %q", l.after, got)
				}
			}
			for i := range direct {
				for _, command := range afterwards {
					same(i, command)
				}
			}
			for i, c := range through {
				token := c.Lock(fmt.Sprintf("job%d 600", i))
				c.Expect(fmt.Sprintf("FENCE job%d %d SET f%d x", i, token, i), "+OK\r\n")
				c.Expect(proxytest.Unlock(fmt.Sprintf("job%d", i), token), ":1\r\n")
			}
			token := through[0].Lock("job 600")
			through[1].Send("LOCK job 600 WAIT 0")
			testwait.Until(t, "it waits", func() bool { return p.Server.Stats().Locks.Waiters == 1 })
			through[0].Expect(proxytest.Unlock("job", token), ":1\r\n")
			if got := through[1].Reply(); got[0] != ':' {
				t.Errorf("a waiter: %q", got)
			}
			// A new client needs the new password, and gets nothing for the old one.
			if l.login == "" || l.login == "HELLO 3" {
				proxytest.AwaitJudged(t, p)
			}
			newDirect, newThrough := proxytest.Dial(t, alone.Addr()), proxytest.Dial(t, p.Addr)
			for _, command := range []string{l.login, "GET a", "MULTI", l.login, l.again, "GET a"} {
				if command == "" {
					continue
				}
				if got, want := shown(command, newThrough.Do(command)),
					shown(command, newDirect.Do(command)); got != want {
					t.Errorf("a new client, %s: got %q, want %q", command, got, want)
				}
			}
			// And a connected client can log in again on its own connection.
			same(2, "RESET")
			same(2, "GET a")
			same(2, l.again)
			same(2, "GET a")
		})
	}
}

// Many clients whose password has been changed are served on, whatever each does.
func TestPasswordChangedUnderManyClients(t *testing.T) {
	server := testredis.Start(t)
	const clients = 40
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = false })
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER ann on >old ~* &* +@all", "+OK\r\n")
	var all []*proxytest.Conn
	for range clients {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("AUTH ann old", "+OK\r\n")
		c.Expect("UNWATCH", "+OK\r\n") // by its home, which it would not get later
		all = append(all, c)
	}
	admin.Expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
	var running sync.WaitGroup
	for i, c := range all {
		running.Go(func() {
			for round := range 5 {
				db := (i + round) % 3
				c.Send("MULTI", "ECHO x", "EXEC", fmt.Sprintf("SELECT %d", db),
					fmt.Sprintf("SET k%d %d", i, db), "BLPOP nothing 0.01",
					fmt.Sprintf("GET k%d", i))
				for j, want := range []string{"+OK", "+QUEUED", "*1", "+OK", "+OK", "*-1",
					fmt.Sprintf("$1\r\n%d", db)} {
					got, err := c.TryReply()
					if err != nil || !strings.HasPrefix(got, want) {
						t.Errorf("client %d, round %d, reply %d: %q, %v, want %q", i, round, j, got,
							err, want)
						return
					}
				}
			}
		})
	}
	running.Wait()
	st := p.Server.Stats().Connections
	if n := strings.Count(admin.Do("CLIENT LIST"), "user=ann"); n > st.Lanes+st.Homes {
		t.Errorf("the upstream has %d connections of ann's, the proxy knows of %+v", n, st)
	}
	stranger := proxytest.Dial(t, p.Addr)
	stranger.Expect("AUTH ann old", "-WRONGPASS…")
	stranger.Expect("AUTH ann new", "+OK\r\n")
	admin.Expect("ACL DELUSER ann", ":1\r\n")
	for _, c := range append(all, stranger) {
		c.Closed()
	}
}

// A client of a deleted user that uses no connection, because
// its home was closed, is closed at once too.
func TestDeletedUserAtRest(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	for _, last := range []string{"", "GET a", "MULTI"} {
		admin.Expect("ACL SETUSER bob on >bob ~* +@all", "+OK\r\n")
		c := proxytest.Dial(t, p.Addr)
		c.Expect("AUTH bob bob", "+OK\r\n")
		if last != "" {
			c.Do(last)
		}
		if last == "MULTI" {
			c.Do("EXEC")
		}
		admin.Expect("ACL DELUSER bob", ":1\r\n")
		c.Closed()
	}
}

// A client that the upstream does not let in again after
// RESET, with the credentials of --upstream, harms no other.
func TestResetWithStaleCredentials(t *testing.T) {
	server := testredis.Start(t)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("CONFIG SET requirepass old", "+OK\r\n")
	p := proxytest.Start(t, strings.Replace(server.URL(), "redis://", "redis://:old@", 1),
		func(cfg *proxy.Config) {
			cfg.Dedicated = false
		})
	c, other := proxytest.SharedClient(t, p.Addr), proxytest.SharedClient(t, p.Addr)
	c.Expect("CLIENT GETNAME", "$-1\r\n") // opens its home, which it would not get later
	other.Expect("MULTI", "+OK\r\n")
	other.Expect("EXEC", "*0\r\n")
	admin.Expect("CONFIG SET requirepass new", "+OK\r\n")
	for range 3 {
		c.Expect("RESET", "+RESET\r\n")
		c.Expect("GET a", "-NOAUTH…")
		for range 3 {
			other.Expect("MULTI", "+OK\r\n")
			other.Expect("EXEC", "*0\r\n")
			other.Expect("GET a", "$-1\r\n")
		}
	}
	c.Expect("AUTH new", "+OK\r\n")
	c.Expect("GET a", "$-1\r\n")
}

// A password that is set, or a default user that is switched off, holds for all clients that come
// later, though connections are shared that were opened before, and idle ones are the proxy's own.
func TestPasswordHoldsForNewClients(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, change string }{
		{"password", "CONFIG SET requirepass secret"},
		{"default user", "ACL SETUSER default off"},
	} {
		for _, behindSentinels := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, Sentinels: %v", test.name, behindSentinels), func(t *testing.T) {
				t.Parallel()
				var server *testredis.Server
				var url string
				if behindSentinels {
					g := testredis.StartGroup(t, testredis.GroupOptions{})
					server, url = g.Master(), g.URL()
				} else {
					server = testredis.Start(t)
					url = server.URL()
				}
				p := proxytest.Start(t, url, func(cfg *proxy.Config) {
					cfg.Dedicated, cfg.UpstreamConns = false, 2
				})
				before := []*proxytest.Conn{proxytest.SharedClient(t, p.Addr),
					proxytest.SharedClient(t, p.Addr)}
				before[0].Expect("SET a b", "+OK\r\n")
				proxytest.AwaitJudged(t, p)
				admin := proxytest.Dial(t, server.Addr())
				admin.Expect(test.change, "+OK\r\n")
				proxytest.AwaitJudged(t, p)
				for range 10 {
					c := proxytest.Dial(t, p.Addr)
					c.Expect("GET a", "-NOAUTH Authentication required.\r\n")
					c.Expect("SET a c", "-NOAUTH Authentication required.\r\n")
					c.Expect("LOCK l 600", "-NOAUTH Authentication required.\r\n")
				}
				for _, c := range before {
					c.Expect("GET a", wire.Bulk("b")) // as directly
				}
			})
		}
	}
}
