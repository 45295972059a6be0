package sharing_test

import (
	"slices"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// listed is the number of the connection of that name, as an operator reads it in CLIENT LIST.
func listed(operator *proxytest.Conn, name string) string {
	operator.T.Helper()
	for id, line := range clientList(operator) {
		if field(line, "name") == name {
			return id
		}
	}
	operator.T.Fatalf("%s is not listed", name)
	return ""
}

// leaves has a client go, and returns when nobody has its home, or others can have it.
func leaves(t *testing.T, p *proxytest.Proxy, c *proxytest.Conn) {
	t.Helper()
	homes := p.Server.Stats().Connections.Homes
	c.Close()
	testwait.Until(t, "its home is given up", func() bool {
		return p.Server.Stats().Connections.Homes < homes
	})
}

// A number that somebody has read is nobody else's when its client has left, as directly: CLIENT KILL
// closes no other client, CLIENT UNBLOCK ends no other's wait, and what is redirected to it reaches
// nobody.
func TestNumbersOutliveNobody(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	operator := proxytest.Dial(t, p.Addr)
	// seen returns the number of a client that has left. It was read by how.
	seen := func(t *testing.T, how func() string) string {
		t.Helper()
		victim := proxytest.Dial(t, p.Addr)
		victim.Expect("CLIENT SETNAME victim", "+OK\r\n")
		id := how()
		leaves(t, p, victim)
		return id
	}
	ways := map[string]func() string{
		"CLIENT LIST": func() string { return listed(operator, "victim") },
		"CLIENT LIST in a transaction": func() string {
			operator.Expect("MULTI", "+OK\r\n")
			operator.Expect("CLIENT LIST", "+QUEUED\r\n")
			list := operator.Do("EXEC")
			before, _, _ := strings.Cut(list, " name=victim ")
			id, _, _ := strings.Cut(before[strings.LastIndex(before, "\nid=")+len("\nid="):], " ")
			return id
		},
		"CLIENT LIST that is too large to be seen whole": func() string {
			id := listed(admin, "victim") // directly, which the proxy does not see
			words := append([]string{"CLIENT", "LIST", "ID", id},
				slices.Repeat([]string{strings.Repeat("9", 18)}, 50_000)...)
			c := proxytest.Dial(t, p.Addr)
			if got := c.DoWords(words...); !strings.Contains(got, "id="+id+" ") {
				t.Fatalf("the list is %.100q", got)
			}
			return id
		},
	}
	for name, how := range ways {
		t.Run(name, func(t *testing.T) {
			t.Run("KILL", func(t *testing.T) {
				id := seen(t, how)
				next := proxytest.Dial(t, p.Addr)
				next.Expect("CLIENT SETNAME next", "+OK\r\n")
				operator.Expect("CLIENT KILL ID "+id, ":0\r\n")
				next.Expect("CLIENT GETNAME", wire.Bulk("next"))
			})
			t.Run("UNBLOCK", func(t *testing.T) {
				id := seen(t, how)
				next := proxytest.Dial(t, p.Addr)
				next.Send("BLPOP list 0")
				awaitBlocked(t, admin)
				operator.Expect("CLIENT UNBLOCK "+id, ":0\r\n")
				admin.Expect("RPUSH list x", ":1\r\n")
				next.WantReply("*2\r\n$4\r\nlist\r\n$1\r\nx\r\n")
			})
			t.Run("REDIRECT", func(t *testing.T) {
				tracker := proxytest.Dial(t, p.Addr)
				seen(t, func() string {
					id := how()
					tracker.Expect("CLIENT TRACKING ON REDIRECT "+id, "+OK\r\n")
					tracker.Expect("GET secret", "$-1\r\n")
					return id
				})
				pushedNothing(t, p, admin)
			})
		})
	}
	// The number is read at Redis itself, but given to the proxy while its client is there.
	t.Run("REDIRECT to a number from elsewhere", func(t *testing.T) {
		tracker := proxytest.Dial(t, p.Addr)
		seen(t, func() string {
			id := listed(admin, "victim")
			tracker.Expect("CLIENT TRACKING ON REDIRECT "+id+" BCAST", "+OK\r\n")
			return id
		})
		pushedNothing(t, p, admin)
	})
}

// pushedNothing fails if the next client is told of a key that it has not asked for.
func pushedNothing(t *testing.T, p *proxytest.Proxy, admin *proxytest.Conn) {
	t.Helper()
	next := proxytest.Dial(t, p.Addr)
	next.Expect("HELLO 3", "%…")
	admin.Expect("SET secret x", "+OK\r\n")
	admin.Expect("DEL secret", ":1\r\n")
	next.Expect("CLIENT GETNAME", "_\r\n")
}

// Visits that begin behind a list get connections that others have had, as they do where nobody reads
// numbers.
func TestReuseBehindAList(t *testing.T) {
	p := sharing(t, testredis.Start(t), 1)
	operator := proxytest.Dial(t, p.Addr)
	visit := func() {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("CLIENT SETNAME me", "+OK\r\n")
		leaves(t, p, c)
	}
	for _, list := range []string{"CLIENT LIST", "ACL LOG"} {
		visit()
		if got := operator.Do(list); got[0] == '-' {
			t.Fatal(got)
		}
		before := p.Server.Stats().Connections.Reused
		testwait.Until(t, "a connection is used again", func() bool {
			visit()
			return p.Server.Stats().Connections.Reused > before
		})
	}
}

// Visits of a client library that says its name and version, as most do, get connections that others
// have had, and nothing of that is left on them.
func TestReuseBehindALibrary(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	visit := func() {
		c := proxytest.Dial(t, p.Addr)
		for _, request := range []string{"CLIENT SETINFO LIB-NAME redis-py", "CLIENT SETINFO LIB-VER 5.0"} {
			c.Do(request) // before Redis 7.2 it is refused
		}
		c.Expect("CLIENT SETNAME me", "+OK\r\n")
		leaves(t, p, c)
	}
	visit()
	before := p.Server.Stats().Connections.Reused
	testwait.Until(t, "a connection is used again", func() bool {
		visit()
		return p.Server.Stats().Connections.Reused > before
	})
	admin := proxytest.Dial(t, server.Addr())
	testwait.Until(t, "no connection has a label", func() bool {
		list := admin.Do("CLIENT LIST")
		return !strings.Contains(list, "name=me") && !strings.Contains(list, "redis-py") &&
			!strings.Contains(list, "lib-ver=5")
	})
}
