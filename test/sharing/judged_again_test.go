package sharing_test

import (
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// A client that an older answer of Redis has let in, and whose home owes it a reply that does not
// come, is judged again once that has come. If it leaves before, nothing of it is left.
func TestJudgedAgainBehindAPendingReply(t *testing.T) {
	server := testredis.Start(t)
	p := sharing(t, server, 1)
	admin := proxytest.Dial(t, server.Addr())
	// blocked is a client in BLPOP, which came after a password was set and was let in all the same.
	blocked := func(t *testing.T) (c *proxytest.Conn) {
		t.Helper()
		var later *proxytest.Conn
		testwait.Until(t, "clients are let in by an older answer", func() bool {
			admin.DoWords("CONFIG", "SET", "requirepass", "")
			testwait.Until(t, "a client is let in", func() bool {
				other := proxytest.Dial(t, p.Addr)
				defer other.Close()
				return other.Do("GET x") == "$-1\r\n"
			})
			admin.Expect("CONFIG SET requirepass secret", "+OK\r\n")
			c = proxytest.Dial(t, p.Addr)
			if c.Do("GET x") != "$-1\r\n" {
				c.Close()
				return false
			}
			c.Send("BLPOP list 0")
			testwait.Until(t, "BLPOP is refused, or blocks", func() bool {
				return c.Arrived() || blockedClients(admin) == 1
			})
			if later = proxytest.Dial(t, p.Addr); !c.Arrived() && later.Do("GET x") == "$-1\r\n" {
				return true
			}
			c.Close()
			later.Close()
			return false
		})
		testwait.Until(t, "a client that came later is judged again", func() bool {
			return later.Do("GET x") == "-NOAUTH Authentication required.\r\n"
		})
		later.Close()
		c.Send("GET x")
		return c
	}
	t.Run("the reply comes", func(t *testing.T) {
		c := blocked(t)
		admin.Expect("RPUSH list a", ":1\r\n")
		c.WantReply("*2\r\n$4\r\nlist\r\n$1\r\na\r\n")
		c.WantReply("-NOAUTH Authentication required.\r\n")
	})
	t.Run("the client leaves", func(t *testing.T) {
		c := blocked(t)
		clients := p.Server.Stats().Clients
		c.Close()
		testwait.Until(t, "the client is gone", func() bool {
			return p.Server.Stats().Clients < clients && blockedClients(admin) == 0
		})
		admin.Expect("RPUSH list b", ":1\r\n") // nobody takes it
		admin.Expect("LPOP list", "$1\r\nb\r\n")
	})
}

// blockedClients is how many clients Redis has blocked.
func blockedClients(admin *proxytest.Conn) int {
	admin.T.Helper()
	_, rest, _ := strings.Cut(admin.Do("INFO clients"), "blocked_clients:")
	n, err := strconv.Atoi(strings.Split(rest, "\r\n")[0])
	if err != nil {
		admin.T.Fatal(err)
	}
	return n
}
