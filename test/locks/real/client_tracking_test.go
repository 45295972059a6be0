package real_test

import (
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// tracker is a client with CLIENT TRACKING.
type tracker struct {
	*proxytest.Conn
	told *proxytest.Conn // who gets what it is told: itself, or in RESP2 the client of its REDIRECT
	list []string        // what has come
}

// ask is the reply to a command, behind what was told before.
func (c *tracker) ask(command string) (reply string) {
	c.Send(command)
	for reply = c.Reply(); strings.HasPrefix(reply, ">"); reply = c.Reply() {
		c.list = append(c.list, reply)
	}
	return reply
}

// toldUntil returns what has come until a change of a key that was read is told.
func (c *tracker) toldUntil(key string) string {
	for len(c.list) == 0 || !strings.Contains(c.list[len(c.list)-1], "\r\n"+key+"\r\n") {
		c.list = append(c.list, c.told.Reply())
	}
	return strings.Join(c.list, "")
}

// newTracker is a client that tracks keys, with these options.
func newTracker(t *testing.T, addr, login, protocol, options string) *tracker {
	c := &tracker{Conn: proxytest.Dial(t, addr)}
	c.told = c.Conn
	if login != "" {
		c.Expect(login, "+OK\r\n")
	}
	if protocol == "3" {
		c.Do("HELLO 3")
	} else {
		c.told = proxytest.Dial(t, addr)
		if login != "" {
			c.told.Expect(login, "+OK\r\n")
		}
		id := strings.Trim(c.told.Do("CLIENT ID"), ":\r\n")
		c.told.Do("SUBSCRIBE __redis__:invalidate")
		options += " REDIRECT " + id
	}
	c.Expect("CLIENT TRACKING ON"+options, "+OK\r\n")
	return c
}

// A client with CLIENT TRACKING that locks is told of the keys that it has read, the locks' among
// them, and never of the records of locks, which the proxy reads for it: not when others change
// them, whichever lock commands it uses.
func TestTrackingClientsAreNotToldOfRecords(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ login, protocol, options string }{
		{"", "3", ""}, {"", "2", ""}, {"AUTH ann pw", "3", ""}, {"AUTH ann pw", "2", ""},
		{"", "3", " NOLOOP"}, {"", "3", " OPTOUT"},
	} {
		t.Run(test.login+" RESP"+test.protocol+test.options, func(t *testing.T) {
			t.Parallel()
			redis := testredis.Start(t)
			redis.Ask("ACL", "SETUSER", "ann", "on", ">pw", "~*", "&*", "+@all")
			p := proxytest.Start(t, redis.URL(), nil)
			if proxytest.Dedicated {
				return // each client has one connection there, which tracks all that is read
			}
			c := newTracker(t, p.Addr, test.login, test.protocol, test.options)
			other := proxytest.Dial(t, p.Addr)
			direct := proxytest.Dial(t, redis.Addr())
			for _, key := range []string{"a", "b", "s", "o"} {
				c.ask("GET " + key)
			}
			c.ask("GET marker")
			c.Send("SET x 1") // it is under way when LOCK comes
			token := c.ask("LOCK a 600")
			if token != "+OK\r\n" {
				t.Fatalf("SET: %q", token)
			}
			for token = c.Reply(); token[0] == '>'; token = c.Reply() {
				c.list = append(c.list, token)
			}
			token = strings.Trim(token, ":\r\n")
			if n, err := strconv.ParseInt(token, 10, 64); err != nil || n <= 0 {
				t.Fatalf("LOCK: %q", token)
			}
			c.ask("RELOCK a " + token + " 500")
			c.ask("LOCKINFO a")
			other.Lock("b 600")
			c.ask("LOCK b 600 WAIT 0.01")
			c.ask("LOCK s 600 SHARED")
			c.ask("ONCE o 600")
			c.ask("LOCKALL 600 2 c d")
			for _, command := range []string{"UNLOCK a FORCE", "UNLOCK b FORCE", "UNLOCK s FORCE",
				"UNLOCK c FORCE", "LOCK a 600", "LOCK b 600", "LOCK s 600 SHARED", "LOCK c 600",
				"UNLOCK a FORCE"} {
				if reply := other.Do(command); reply[0] != ':' {
					t.Fatalf("%s: %q", command, reply)
				}
			}
			direct.Do("SET marker 1")
			told := c.toldUntil("marker")
			if strings.Contains(told, ":lockproxy:") {
				t.Errorf("told of records: %q", told)
			}
			for _, key := range []string{"a", "b", "s"} {
				if n := strings.Count(told, "\r\n"+key+"\r\n"); n != 1 {
					t.Errorf("told %d times of %s, which it has read once: %q", n, key, told)
				}
			}
			if c.ask("GET a") != "$-1\r\n" && c.ask("GET a") != "_\r\n" {
				t.Error("a was released, and is there")
			}
			other.Lock("a 600")
			if !strings.Contains(c.toldUntil("a"), "\r\na\r\n") {
				t.Error("not told of a again")
			}
		})
	}
}
