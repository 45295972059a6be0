package lockproxy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/testredis"
)

// Who has not logged in profits from nobody's login, whenever it came to be demanded.
func TestLanesOfThoseWhoLoggedIn(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	before := trusted(t, p.addr)
	admin := dial(t, server.Addr())
	admin.expect("CONFIG SET requirepass secret", "+OK\r\n")
	for range 3 {
		before.expect("SET a b", "+OK\r\n") // as with Redis, who was let in stays
		c := dial(t, p.addr)
		c.expect("GET a", "-NOAUTH…")
		c.expect("GET a", "-NOAUTH…")
		c.expect("LOCK a 1", "-NOAUTH…")
		c.expect("AUTH wrong", "-WRONGPASS…")
		c.expect("GET a", "-NOAUTH…")
		c.expect("MULTI", "-NOAUTH…")
		c.expect("HELLO 3", "-NOAUTH…")
		c.expect("INFO lockproxy", "-NOAUTH…")
		c.expect("AUTH secret", "+OK\r\n")
		c.expect("GET a", "$1\r\nb\r\n")
		c.expect("AUTH wrong", "-WRONGPASS…")
		c.expect("GET a", "$1\r\nb\r\n") // still who it was
		c.expect("RESET", "+RESET\r\n")
		c.expect("GET a", "-NOAUTH…")
		pipelined := dial(t, p.addr)
		pipelined.send("GET a", "AUTH wrong", "GET a", "AUTH secret", "GET a", "RESET", "GET a", "QUIT")
		for i, want := range []string{"-NOAUTH", "-WRONGPASS", "-NOAUTH", "+OK", "$1\r\nb", "+RESET", "-NOAUTH", "+OK"} {
			if got := pipelined.reply(); !strings.HasPrefix(got, want) {
				t.Errorf("pipelined %d: %q, want %q", i, got, want)
			}
		}
		pipelined.closed()
		// The limits of those who haven't logged in are Redis's.
		stranger := dial(t, p.addr)
		stranger.write("*100\r\n" + strings.Repeat("$1\r\na\r\n", 100))
		if got := stranger.reply(); !strings.HasPrefix(got, "-ERR Protocol error: unauthenticated multibulk length") {
			t.Errorf("many arguments of a stranger: %q", got)
		}
	}
}

// Each client is who it is, though they all talk at once; and a user who is deleted is thrown out.
func TestLanesOfUsers(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := dial(t, server.Addr())
	for _, user := range []string{"ann", "bob", "cid"} {
		admin.expect(fmt.Sprintf("ACL SETUSER %s on >%s ~%s:* +@all", user, user, user), "+OK\r\n")
	}
	var clients []*rawConn
	users := []string{"default", "ann", "bob", "cid"}
	for i := range 24 {
		c := dial(t, p.addr)
		if user := users[i%4]; user != "default" {
			if i%8 < 4 {
				c.expect(fmt.Sprintf("AUTH %s %s", user, user), "+OK\r\n")
			} else {
				c.expect(fmt.Sprintf("HELLO 3 AUTH %s %s", user, user), "%…")
			}
		}
		clients = append(clients, c)
	}
	for round := range 20 {
		for i, c := range clients {
			user := users[i%4]
			c.send("ACL WHOAMI", fmt.Sprintf("SET %s:k %d", user, round), "EVAL return(redis.call('ACL','WHOAMI')) 0", "SET other:k 1", fmt.Sprintf("LOCK %s:lock%d:%d 5", user, i, round), "LOCK other:lock 0.001", "MULTI", "ACL WHOAMI", "EXEC")
		}
		for i, c := range clients {
			user := users[i%4]
			refused, multi := "-NOPERM", fmt.Sprintf("*1\r\n$%d\r\n%s\r\n", len(user), user)
			if user == "default" {
				refused = ""
			}
			script := "-ERR" // ACL may not be called by scripts
			for j, want := range []string{fmt.Sprintf("$%d\r\n%s\r\n", len(user), user), "+OK\r\n", script, refused, ":", refused, "+OK\r\n", "+QUEUED\r\n", multi} {
				if got := c.reply(); !strings.HasPrefix(got, want) {
					t.Fatalf("%s, reply %d: %q, want %q", user, j, got, want)
				}
			}
		}
	}
	// Six clients of ann's have a home each, and a lane for each of two protocols, for scripts and without.
	if n := len(laneIDs(admin, " user=ann ")); n < 6+1 || n > 6+4 {
		t.Errorf("ann has %d connections: %s", n, admin.do("CLIENT LIST"))
	}
	admin.expect("ACL SETUSER ann -set", "+OK\r\n") // at once, on connections that are open
	clients[1].expect("SET ann:k 1", "-NOPERM…")
	for _, c := range clients {
		c.do("PING") // by a lane again
	}
	admin.expect("ACL DELUSER bob", ":1\r\n")
	eventually(t, 5*time.Second, "bob is thrown out", func() bool {
		for i, c := range clients {
			if users[i%4] != "bob" {
				continue
			}
			if _, err := c.tryReply(10 * time.Millisecond); err == nil || isTimeout(err) {
				return false
			}
		}
		return true
	})
	clients[3].expect("ACL WHOAMI", "$3\r\ncid\r\n")
	clients[0].expect("ACL WHOAMI", "$7\r\ndefault\r\n")
	c := dial(t, p.addr)
	c.expect("AUTH bob bob", "-WRONGPASS…")
	c.expect("ACL WHOAMI", "$7\r\ndefault\r\n")
}

// A HELLO that logs in and then fails leaves nobody else logged in, in any version of Redis.
func TestFailedHelloStaysWithItsClient(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	dial(t, server.Addr()).expect("ACL SETUSER boss on >boss ~* +@all", "+OK\r\n")
	c := trusted(t, p.addr)
	c.expect("HELLO 2 AUTH boss boss NONSENSE", "-ERR…")
	c.expect("GET a", "$-1\r\n")
	other := trusted(t, p.addr)
	other.expect("MULTI", "+OK\r\n")
	other.expect("ACL WHOAMI", "+QUEUED\r\n")
	other.expect("EXEC", "*1\r\n$7\r\ndefault\r\n")
	// One that is too large to be looked at changes who it is, and stays apart too.
	big := strings.Repeat("n", 1200<<10)
	c = trusted(t, p.addr)
	c.expect("HELLO 3 AUTH boss boss SETNAME "+big, "%…")
	for range 300 {
		c.expect("ACL WHOAMI", "$4\r\nboss\r\n")
	}
	for range 20 {
		other.expect("MULTI", "+OK\r\n")
		other.expect("ACL WHOAMI", "+QUEUED\r\n")
		other.expect("EXEC", "*1\r\n$7\r\ndefault\r\n")
	}
	// Nor does one that follows keys share what it is sent.
	other.expect("GET a", "$-1\r\n")
	share := p.server.Stats().Connections.Shared
	c = dial(t, p.addr)
	c.expect("PING", "+PONG\r\n")
	c.expect("CLIENT TRACKING ON BCAST PREFIX "+strings.Repeat("p", 1200<<10), "+OK\r\n")
	for range 300 {
		c.expect("GET a", "$-1\r\n")
	}
	if got := p.server.Stats().Connections.Shared; got != share {
		t.Errorf("%d clients use a lane, want %d as before", got, share)
	}
}
