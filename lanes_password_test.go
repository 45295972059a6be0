package lockproxy_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// A password that is changed while its clients are connected: what they are told directly, they are told through the proxy.

// changedLogin is one way to be let in, and how that ends for others.
type changedLogin struct {
	name   string
	before string // what the administrator sets up first
	login  string // what the client sends; "" is nothing
	after  string // what the administrator changes then
	again  string // logs in after that
}

var changedLogins = []changedLogin{
	{"user", "ACL SETUSER ann on >old ~* &* +@all", "AUTH ann old", "ACL SETUSER ann resetpass >new", "AUTH ann new"},
	{"user by HELLO", "ACL SETUSER ann on >old ~* &* +@all", "HELLO 3 AUTH ann old", "ACL SETUSER ann resetpass >new", "HELLO 3 AUTH ann new"},
	{"user switched off", "ACL SETUSER ann on >old ~* &* +@all", "AUTH ann old", "ACL SETUSER ann off", "AUTH default new"},
	{"default user by AUTH", "CONFIG SET requirepass old", "AUTH old", "CONFIG SET requirepass new", "AUTH new"},
	{"default user by HELLO", "CONFIG SET requirepass old", "HELLO 2 AUTH default old", "ACL SETUSER default resetpass >new", "AUTH default new"},
	{"default user without a password", "PING", "", "CONFIG SET requirepass new", "AUTH new"},
	{"default user in RESP3", "PING", "HELLO 3", "ACL SETUSER default resetpass >new", "HELLO 3 AUTH default new"},
	{"default user whose password is taken away", "CONFIG SET requirepass old", "AUTH old", `CONFIG SET requirepass ""`, "PING"},
}

// afterwards is what a client does then. What differs by nature is left out by shown.
var afterwards = []string{
	"GET a", "SET b 1", "ECHO here", "ACL WHOAMI",
	"MULTI", "INCR n", "ACL WHOAMI", "EXEC",
	"SELECT 3", "SET where three", "MULTI", "GET where", "EXEC", "LPUSH l x", "BLPOP l 1", "GET where",
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

func TestPasswordChangedWhileConnected(t *testing.T) {
	for _, l := range changedLogins {
		t.Run(l.name, func(t *testing.T) {
			alone, behind := testredis.Start(t), testredis.Start(t)
			p := sharing(t, behind, 1)
			admins := []*rawConn{dial(t, alone.Addr()), dial(t, behind.Addr())}
			for _, admin := range admins {
				admin.expect("SET a value", "+OK\r\n")
				admin.do(l.before)
			}
			direct, through := []*rawConn{}, []*rawConn{}
			for range 3 {
				direct, through = append(direct, dial(t, alone.Addr())), append(through, dial(t, p.addr))
			}
			same := func(i int, command string) {
				t.Helper()
				if want, got := shown(command, direct[i].do(command)), shown(command, through[i].do(command)); got != want {
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
			for _, admin := range admins {
				admin.write(l.after + "\r\n")
				if got := admin.reply(); got != "+OK\r\n" {
					t.Fatalf("%s: %q", l.after, got)
				}
			}
			for i := range direct {
				for _, command := range afterwards {
					same(i, command)
				}
			}
			for i, c := range through {
				token := c.lock(fmt.Sprintf("job%d 5", i))
				c.expect(fmt.Sprintf("FENCE job%d %d SET f%d x", i, token, i), "+OK\r\n")
				c.expect(unlock(fmt.Sprintf("job%d", i), token), ":1\r\n")
			}
			token := through[0].lock("job 5")
			through[1].send("LOCK job 5 WAIT 5")
			time.Sleep(20 * time.Millisecond)
			through[0].expect(unlock("job", token), ":1\r\n")
			if got := through[1].reply(); got[0] != ':' {
				t.Errorf("a waiter: %q", got)
			}
			// Who comes now needs what is demanded now, and gets nothing for what was right before.
			newDirect, newThrough := dial(t, alone.Addr()), dial(t, p.addr)
			for _, command := range []string{l.login, "GET a", "MULTI", l.login, l.again, "GET a"} {
				if command == "" {
					continue
				}
				if got, want := shown(command, newThrough.do(command)), shown(command, newDirect.do(command)); got != want {
					t.Errorf("a new client, %s: got %q, want %q", command, got, want)
				}
			}
			// And who is connected may log in anew, by the connection that is his.
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
	p := startProxy(t, server.URL(), func(cfg *proxy.Config) { cfg.Dedicated = false })
	admin := dial(t, server.Addr())
	admin.expect("ACL SETUSER ann on >old ~* &* +@all", "+OK\r\n")
	var all []*rawConn
	for range clients {
		c := dial(t, p.addr)
		c.expect("AUTH ann old", "+OK\r\n")
		c.expect("PING", "+PONG\r\n")
		all = append(all, c)
	}
	admin.expect("ACL SETUSER ann resetpass >new", "+OK\r\n")
	var running sync.WaitGroup
	for i, c := range all {
		running.Go(func() {
			for round := range 5 {
				db := (i + round) % 3
				c.send("MULTI", "ECHO x", "EXEC", fmt.Sprintf("SELECT %d", db), fmt.Sprintf("SET k%d %d", i, db), "BLPOP nothing 0.01", fmt.Sprintf("GET k%d", i))
				for j, want := range []string{"+OK", "+QUEUED", "*1", "+OK", "+OK", "*-1", fmt.Sprintf("$1\r\n%d", db)} {
					got, err := c.tryReply(10 * time.Second)
					if err != nil || !strings.HasPrefix(got, want) {
						t.Errorf("client %d, round %d, reply %d: %q, %v, want %q", i, round, j, got, err, want)
						return
					}
				}
			}
		})
	}
	running.Wait()
	st := p.server.Stats().Connections
	if n := strings.Count(admin.do("CLIENT LIST"), "user=ann"); n > st.Lanes+st.Homes {
		t.Errorf("the upstream has %d connections of ann's, the proxy knows of %+v", n, st)
	}
	stranger := dial(t, p.addr)
	stranger.expect("AUTH ann old", "-WRONGPASS…")
	stranger.expect("AUTH ann new", "+OK\r\n")
	admin.expect("ACL DELUSER ann", ":1\r\n")
	for _, c := range append(all, stranger) {
		c.closed()
	}
}

// Who is about to use no connection, his own having been given up, is thrown out with his user all the same, at once.
func TestDeletedUserWhoRests(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := dial(t, server.Addr())
	for _, last := range []string{"", "GET a", "MULTI"} {
		admin.expect("ACL SETUSER bob on >bob ~* +@all", "+OK\r\n")
		c := dial(t, p.addr)
		c.expect("AUTH bob bob", "+OK\r\n")
		if last != "" {
			c.do(last)
		}
		if last == "MULTI" {
			c.do("EXEC")
		}
		time.Sleep(20 * time.Millisecond)
		admin.expect("ACL DELUSER bob", ":1\r\n")
		c.closed()
	}
}

// Whom the upstream doesn't let in again after RESET, with the credentials of --upstream, harms nobody else.
func TestResetWithStaleCredentials(t *testing.T) {
	server := testredis.Start(t)
	admin := dial(t, server.Addr())
	admin.expect("CONFIG SET requirepass old", "+OK\r\n")
	p := startProxy(t, strings.Replace(server.URL(), "redis://", "redis://:old@", 1), func(cfg *proxy.Config) { cfg.Dedicated = false })
	c, other := trusted(t, p.addr), trusted(t, p.addr)
	other.expect("MULTI", "+OK\r\n")
	other.expect("EXEC", "*0\r\n")
	admin.expect("CONFIG SET requirepass new", "+OK\r\n")
	for range 3 {
		c.expect("RESET", "+RESET\r\n")
		c.expect("GET a", "-NOAUTH…")
		for range 3 {
			other.expect("MULTI", "+OK\r\n")
			other.expect("EXEC", "*0\r\n")
			other.expect("GET a", "$-1\r\n")
		}
	}
	c.expect("AUTH new", "+OK\r\n")
	c.expect("GET a", "$-1\r\n")
}
