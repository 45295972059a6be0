package sharing_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// A client that has not logged in gets nothing from another client's login, whenever the password
// came to be required.
func TestLanesAreForLoggedInClients(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	before := proxytest.SharedClient(t, p.Addr)
	proxytest.AwaitJudged(t, p)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("CONFIG SET requirepass secret", "+OK\r\n")
	proxytest.AwaitJudged(t, p)
	for range 3 {
		before.Expect("SET a b", "+OK\r\n") // as with Redis, an admitted client stays
		c := proxytest.Dial(t, p.Addr)
		c.Expect("GET a", "-NOAUTH…")
		c.Expect("GET a", "-NOAUTH…")
		c.Expect("LOCK a 600", "-NOAUTH…")
		c.Expect("AUTH wrong", "-WRONGPASS…")
		c.Expect("GET a", "-NOAUTH…")
		c.Expect("MULTI", "-NOAUTH…")
		c.Expect("HELLO 3", "-NOAUTH…")
		c.Expect("INFO lockproxy", "-NOAUTH…")
		c.Expect("AUTH secret", "+OK\r\n")
		c.Expect("GET a", "$1\r\nb\r\n")
		c.Expect("AUTH wrong", "-WRONGPASS…")
		c.Expect("GET a", "$1\r\nb\r\n") // still the same user
		c.Expect("RESET", "+RESET\r\n")
		c.Expect("GET a", "-NOAUTH…")
		pipelined := proxytest.Dial(t, p.Addr)
		pipelined.Send("GET a", "AUTH wrong", "GET a", "AUTH secret", "GET a", "RESET", "GET a",
			"QUIT")
		for i, want := range []string{"-NOAUTH", "-WRONGPASS", "-NOAUTH", "+OK", "$1\r\nb",
			"+RESET", "-NOAUTH", "+OK"} {
			if got := pipelined.Reply(); !strings.HasPrefix(got, want) {
				t.Errorf("pipelined %d: %q, want %q", i, got, want)
			}
		}
		pipelined.Closed()
		// The limits before a login are Redis's.
		stranger := proxytest.Dial(t, p.Addr)
		stranger.WriteRaw("*100\r\n" + strings.Repeat("$1\r\na\r\n", 100))
		if got := stranger.Reply(); !strings.HasPrefix(got,
			"-ERR Protocol error: unauthenticated multibulk length") {
			t.Errorf("many arguments of a stranger: %q", got)
		}
	}
}

// Clients of several users work at once, and each keeps its
// user; a deleted user's clients are closed.
func TestLanesOfUsers(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	for _, user := range []string{"ann", "bob", "cid"} {
		admin.Expect(fmt.Sprintf("ACL SETUSER %s on >%s ~%s:* +@all", user, user, user), "+OK\r\n")
	}
	var clients []*proxytest.Conn
	users := []string{"default", "ann", "bob", "cid"}
	for i := range 24 {
		c := proxytest.Dial(t, p.Addr)
		if user := users[i%4]; user != "default" {
			if i%8 < 4 {
				c.Expect(fmt.Sprintf("AUTH %s %s", user, user), "+OK\r\n")
			} else {
				c.Expect(fmt.Sprintf("HELLO 3 AUTH %s %s", user, user), "%…")
			}
		}
		clients = append(clients, c)
	}
	for round := range 20 {
		for i, c := range clients {
			user := users[i%4]
			c.Send("ACL WHOAMI", fmt.Sprintf("SET %s:k %d", user, round),
				"EVAL return(redis.call('ACL','WHOAMI')) 0", "SET other:k 1",
				fmt.Sprintf("LOCK %s:lock%d:%d 600", user, i, round), "LOCK other:lock 600",
				"MULTI", "ACL WHOAMI", "EXEC")
		}
		for i, c := range clients {
			user := users[i%4]
			refused, multi := "-NOPERM", fmt.Sprintf("*1\r\n$%d\r\n%s\r\n", len(user), user)
			if user == "default" {
				refused = ""
			}
			script := "-ERR" // scripts may not call ACL
			for j, want := range []string{fmt.Sprintf("$%d\r\n%s\r\n", len(user), user), "+OK\r\n",
				script, refused, ":", refused, "+OK\r\n", "+QUEUED\r\n", multi} {
				if got := c.Reply(); !strings.HasPrefix(got, want) {
					t.Fatalf("%s, reply %d: %q, want %q", user, j, got, want)
				}
			}
		}
	}
	// Six clients of ann's have a home each, and a lane for
	// each of two protocols, with and without scripts.
	if n := len(laneIDs(admin, " user=ann ")); n < 6+1 || n > 6+4 {
		t.Errorf("ann has %d connections: %s", n, admin.Do("CLIENT LIST"))
	}
	admin.Expect("ACL SETUSER ann -set", "+OK\r\n") // at once, on open connections
	clients[1].Expect("SET ann:k 1", "-NOPERM…")
	for _, c := range clients {
		c.Do("PING") // by a lane again
	}
	admin.Expect("ACL DELUSER bob", ":1\r\n")
	for i, c := range clients {
		if users[i%4] == "bob" {
			c.Closed()
		}
	}
	clients[3].Expect("ACL WHOAMI", "$3\r\ncid\r\n")
	clients[0].Expect("ACL WHOAMI", "$7\r\ndefault\r\n")
	c := proxytest.Dial(t, p.Addr)
	c.Expect("AUTH bob bob", "-WRONGPASS…")
	c.Expect("ACL WHOAMI", "$7\r\ndefault\r\n")
}

// A HELLO that logs in and then fails logs in no other client, in any version of Redis.
func TestFailedHelloStaysWithItsClient(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	proxytest.Dial(t, server.Addr()).Expect("ACL SETUSER boss on >boss ~* +@all", "+OK\r\n")
	c := proxytest.SharedClient(t, p.Addr)
	c.Expect("HELLO 2 AUTH boss boss NONSENSE", "-ERR…")
	c.Expect("GET a", "$-1\r\n")
	other := proxytest.SharedClient(t, p.Addr)
	other.Expect("MULTI", "+OK\r\n")
	other.Expect("ACL WHOAMI", "+QUEUED\r\n")
	other.Expect("EXEC", "*1\r\n$7\r\ndefault\r\n")
	// One that is too large to be read whole changes the user, and stays apart too.
	big := strings.Repeat("n", 1200<<10)
	c = proxytest.SharedClient(t, p.Addr)
	c.Expect("HELLO 3 AUTH boss boss SETNAME "+big, "%…")
	for range 300 {
		c.Expect("ACL WHOAMI", "$4\r\nboss\r\n")
	}
	for range 20 {
		other.Expect("MULTI", "+OK\r\n")
		other.Expect("ACL WHOAMI", "+QUEUED\r\n")
		other.Expect("EXEC", "*1\r\n$7\r\ndefault\r\n")
	}
	// Nor does a client that tracks keys share the pushes it gets.
	other.Expect("GET a", "$-1\r\n")
	share := p.Server.Stats().Connections.Shared
	c = proxytest.Dial(t, p.Addr)
	c.Expect("PING", "+PONG\r\n")
	c.Expect("CLIENT TRACKING ON BCAST PREFIX "+strings.Repeat("p", 1200<<10), "+OK\r\n")
	for range 300 {
		c.Expect("GET a", "$-1\r\n")
	}
	if got := p.Server.Stats().Connections.Shared; got != share {
		t.Errorf("%d clients use a lane, want %d as before", got, share)
	}
}
