package sharing_test

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// A client has an upstream connection, its home, from when it needs one.

// clientList is the upstream's list of clients, by id, without the one that asks.
func clientList(admin *proxytest.Conn) map[string]string {
	admin.T.Helper()
	list := map[string]string{}
	me := strings.TrimPrefix(strings.TrimSuffix(admin.Do("CLIENT ID"), "\r\n"), ":")
	for line := range strings.SplitSeq(admin.Do("CLIENT LIST"), "\n") {
		if m := regexp.MustCompile(`^(?:.*\r)?id=(\d+) `).FindStringSubmatch(line); m != nil &&
			m[1] != me {
			list[m[1]] = line
		}
	}
	return list
}

// field reads one field of a line of CLIENT LIST.
func field(line, name string) string {
	_, rest, _ := strings.Cut(line, " "+name+"=")
	value, _, _ := strings.Cut(rest, " ")
	return value
}

// clientFields are the names, users and databases that a list shows.
func clientFields(list map[string]string) (fields []string) {
	for _, line := range list {
		fields = append(fields, fmt.Sprintf("name=%s user=%s db=%s", field(line, "name"),
			field(line, "user"), field(line, "db")))
	}
	slices.Sort(fields)
	return fields
}

// named is the part of a list of those that have a name.
func named(list map[string]string) map[string]string {
	for id, line := range list {
		if field(line, "name") == "" {
			delete(list, id)
		}
	}
	return list
}

// The upstream shows the proxy's clients that need a connection like its own: one for each, with
// its name, user and database, which ends with the client.
func TestClientListShowsTheClients(t *testing.T) {
	alone, behind := testredis.Start(t), testredis.Start(t)
	p := sharing(t, behind, 1)
	var lists [2][]string
	var clients [2][]*proxytest.Conn
	admins := [2]*proxytest.Conn{proxytest.Dial(t, alone.Addr()), proxytest.Dial(t, behind.Addr())}
	for i, addr := range []string{alone.Addr(), p.Addr} {
		admin := admins[i]
		admin.Expect("ACL SETUSER ann on >pw ~* &* +@all", "+OK\r\n")
		for _, commands := range [][]string{
			{"CLIENT SETNAME first", "SELECT 3"},
			{"AUTH ann pw", "CLIENT SETNAME second", "SELECT 2"},
			{"HELLO 3 AUTH ann pw SETNAME third"},
			{"CLIENT SETNAME gone", "SELECT 1", "CLIENT SETNAME fourth", "SELECT 0"},
			{"CLIENT SETNAME fifth", "SUBSCRIBE news"},
			{"CLIENT SETNAME sixth", "MULTI"},
		} {
			c := proxytest.Dial(t, addr)
			clients[i] = append(clients[i], c)
			for _, command := range commands {
				if got := c.Do(command); got[0] == '-' {
					t.Fatalf("%s: %q", command, got)
				}
			}
		}
		testwait.Until(t, "all are listed", func() bool {
			return len(named(clientList(admin))) == len(clients[i])
		})
		lists[i] = clientFields(named(clientList(admin)))
		for n, c := range clients[i] {
			c.Close()
			testwait.Until(t, "the client is gone", func() bool {
				return len(named(clientList(admin))) == len(clients[i])-1-n
			})
		}
	}
	if !slices.Equal(lists[0], lists[1]) {
		t.Errorf("through the proxy the list shows\n%s\ndirectly\n%s", strings.Join(lists[1], "\n"),
			strings.Join(lists[0], "\n"))
	}
}

// CLIENT KILL ends the client whose connection it names,
// whether logged in or not, in every state, and no other.
func TestClientKillEndsTheClient(t *testing.T) {
	server := testredis.StartAddressed(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER ann on >pw ~* &* +@all", "+OK\r\n")
	other := proxytest.SharedClient(t, p.Addr)
	for _, login := range []string{"PING", "AUTH ann pw"} {
		for _, before := range []string{"GET a", "SUBSCRIBE c", "MULTI", "CLIENT SETNAME me"} {
			for _, by := range []string{"ID", "ADDR", "proxied ID"} {
				c := proxytest.Dial(t, p.Addr)
				id := strings.TrimSuffix(strings.TrimPrefix(c.Do("CLIENT ID"), ":"), "\r\n")
				c.Do(login)
				c.Do(before)
				switch by {
				case "ID":
					admin.Expect("CLIENT KILL ID "+id, ":1\r\n")
				case "proxied ID":
					other.Expect("CLIENT KILL ID "+id, ":1\r\n")
				case "ADDR":
					admin.Expect("CLIENT KILL ADDR "+field(clientList(admin)[id], "addr"), ":1\r\n")
				}
				if got, err := c.TryReply(); err == nil {
					t.Errorf("%s, %s, killed by %s: it reads %q, %v", login, before, by, got, err)
				}
				other.Expect("GET a", "$-1\r\n")
			}
		}
	}
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH ann pw", "+OK\r\n")
	c.Expect("GET a", "$-1\r\n")
	admin.Expect("CLIENT KILL USER ann", ":…") // and her lane, if she has been here twice
	c.Closed()
	other.Expect("GET a", "$-1\r\n")
}

// A client that is killed while Redis owes it replies gets none, as directly.
func TestClientKillAnswersNothing(t *testing.T) {
	server := testredis.Start(t)
	testKillAnswersNothing(t, server, server.URL(), "PING")
}

// So it is where only clients know the password, and Redis has a name.
func TestClientKillAnswersNothingBehindAPassword(t *testing.T) {
	server := testredis.Start(t, "--requirepass", "secret")
	_, port, _ := net.SplitHostPort(server.Addr())
	testKillAnswersNothing(t, server, "redis://localhost:"+port, "AUTH secret")
}

func testKillAnswersNothing(t *testing.T, server *testredis.Server, url, login string) {
	p := proxytest.Start(t, url, nil)
	admin := proxytest.Dial(t, server.Addr())
	admin.Do(login)
	for _, requests := range [][]string{{"BLPOP k 0"}, {"BLPOP k 0", "GET a"},
		{"BLPOP k 0", "MULTI", "GET a"}} {
		c := proxytest.Dial(t, p.Addr)
		c.Do(login)
		c.Send(requests...)
		blocked := ""
		testwait.Until(t, "the client blocks", func() bool {
			for id, line := range clientList(admin) {
				if field(line, "cmd") == "blpop" {
					blocked = id
				}
			}
			return blocked != ""
		})
		admin.Expect("CLIENT KILL ID "+blocked, ":1\r\n")
		if got, err := c.TryReply(); err == nil {
			t.Errorf("%q: it reads %q, %v", requests, got, err)
		}
	}
}

// A client that has not logged in outlives the upstream's
// restart, and gets a new home under its name.
func TestHomeIsDialledAgain(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	idle, named := proxytest.SharedClient(t, p.Addr), proxytest.SharedClient(t, p.Addr)
	named.Expect("CLIENT SETNAME me", "+OK\r\n")
	named.Expect("SELECT 3", "+OK\r\n")
	server.Kill()
	testwait.Until(t, "the homes are lost", func() bool {
		return p.Server.Stats().Connections.Homes == 0
	})
	server.Restart()
	for _, c := range []*proxytest.Conn{idle, named} {
		c.Expect("MULTI", "+OK\r\n")
		c.Expect("SET a b", "+QUEUED\r\n")
		c.Expect("EXEC", "*1\r\n+OK\r\n")
	}
	named.Expect("CLIENT GETNAME", "$2\r\nme\r\n")
	if info := named.Do("CLIENT INFO"); field(info, "db") != "3" || field(info, "name") != "me" {
		t.Errorf("the client's connection is %q", info)
	}
}

// With --home-idle an unneeded home is closed, and dialled again on demand.
func TestHomeIdle(t *testing.T) {
	server := testredis.Start(t)
	const idle = 300 * time.Millisecond
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.HomeIdle = false, idle
	})
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("ACL SETUSER ann on >pw ~* &* +@all", "+OK\r\n")
	proxytest.OpenLane(t, p.Addr, "SELECT 2")
	plain, subscriber, watching, blocked, fresh := proxytest.SharedClient(t, p.Addr),
		proxytest.SharedClient(t, p.Addr), proxytest.SharedClient(t, p.Addr),
		proxytest.SharedClient(t, p.Addr), proxytest.Dial(t, p.Addr)
	plain.Expect("SELECT 2", "+OK\r\n")
	subscriber.Expect("SUBSCRIBE c", "*3…")
	watching.Expect("WATCH a", "+OK\r\n")
	blocked.Send("BLPOP list 0")
	testwait.Until(t, "only the needed homes are open", func() bool {
		return strings.Contains(admin.Do("CLIENT LIST"), "cmd=blpop") &&
			p.Server.Stats().Connections.Homes == 3
	})
	testwait.Until(t, "it is served by a lane", func() bool { // a slow one has it go by a home
		plain.Expect("GET a", "$-1\r\n")
		return p.Server.Stats().Connections.Homes == 3
	})
	admin.Expect("PUBLISH c x", ":1\r\n")
	subscriber.Reply()
	admin.Expect("SET a changed", "+OK\r\n")
	watching.Expect("MULTI", "+OK\r\n")
	watching.Expect("EXEC", "*-1\r\n")
	admin.Expect("RPUSH list x", ":1\r\n")
	if got := blocked.Reply(); got != "*2\r\n$4\r\nlist\r\n$1\r\nx\r\n" {
		t.Errorf("BLPOP: %q", got)
	}
	plain.Expect("MULTI", "+OK\r\n")
	plain.Expect("SET in two", "+QUEUED\r\n")
	plain.Expect("EXEC", "*1\r\n+OK\r\n")
	plain.Expect("SELECT 0", "+OK\r\n")
	plain.Expect("EXISTS in", ":0\r\n")
	fresh.Expect("AUTH ann pw", "+OK\r\n") // at a home that is dialled for it
	fresh.Expect("MULTI", "+OK\r\n")
	fresh.Expect("ACL WHOAMI", "+QUEUED\r\n")
	fresh.Expect("EXEC", "*1\r\n$3\r\nann\r\n")
}
