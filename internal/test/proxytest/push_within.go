package proxytest

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// Expiring sets keys that expire when somebody reads them, at a server that DEBUG may be sent to.
// Redis up to 7.0 puts the invalidation of such a key, if it is redirected to the reader's
// connection, into the reply to the reader.
type Expiring struct {
	t      testing.TB
	server *testredis.Server
	admin  *Conn
}

// NewExpiring has the server delete no expired key before somebody reads it.
func NewExpiring(t testing.TB, server *testredis.Server) *Expiring {
	t.Helper()
	e := &Expiring{t, server, Dial(t, server.Addr())}
	e.admin.Expect("DEBUG SET-ACTIVE-EXPIRE 0", "+OK\r\n")
	return e
}

// now is the server's time, ms.
func (e *Expiring) now() int {
	e.t.Helper()
	v, err := wire.Parse(e.admin.Do("TIME"))
	if err != nil || len(v.Elems) != 2 {
		e.t.Fatalf("TIME: %v, %v", v, err)
	}
	seconds, _ := strconv.Atoi(v.Elems[0].Text)
	us, _ := strconv.Atoi(v.Elems[1].Text)
	return seconds*1000 + us/1000
}

// Set runs set, which sets the key, and returns when that has expired. The connections with these
// ids are told when it is read. forget must be called then.
func (e *Expiring) Set(set, key string, ids ...string) (forget func()) {
	e.t.Helper()
	var trackers []*Conn
	for range ids {
		trackers = append(trackers, Dial(e.t, e.server.Addr()))
	}
	for life := 50; ; life *= 2 {
		// Nobody is told of this, though a try that has failed has read the key, perhaps once it had
		// expired: then only set has the server forget who has read it.
		e.admin.Do("DEL " + key)
		e.admin.Do(set)
		for i, c := range trackers {
			c.Expect("CLIENT TRACKING ON REDIRECT "+ids[i], "+OK\r\n")
		}
		ends := e.now() + life
		e.admin.Expect(fmt.Sprint("PEXPIREAT ", key, " ", ends), ":1\r\n")
		for _, c := range trackers {
			c.Do("TYPE " + key)
		}
		if e.now() < ends-5 { // otherwise these may have found it expired
			testwait.Until(e.t, "the key has expired", func() bool { return e.now() > ends+5 })
			return func() {
				for _, c := range trackers {
					c.Close()
				}
			}
		}
		for _, c := range trackers {
			c.Expect("CLIENT TRACKING OFF", "+OK\r\n")
		}
	}
}

// Until returns what a client is sent, up to and with the first text.
func (c *Conn) Until(text string) string {
	c.T.Helper()
	c.SetReadDeadline(testwait.Deadline())
	var got strings.Builder
	for !strings.HasSuffix(got.String(), text) {
		b, err := c.In.ReadByte()
		if err != nil {
			c.T.Fatalf("%v behind %q", err, got.String())
		}
		got.WriteByte(b)
	}
	return got.String()
}

// pushedInto is what is asked while the invalidation of a key is redirected to the connection by
// which it goes, and its reply without that.
var pushedInto = []struct{ set, key, ask, want string }{
	{"SET {x}2 b", "{x}2", "MGET {x}1 {x}2 {x}3", "*3\r\n$1\r\na\r\n_\r\n$1\r\nc\r\n"},
	{"SADD {x}s b", "{x}s", "SMEMBERS {x}s", "~0\r\n"},
	{"HSET {x}h b b", "{x}h", "HGETALL {x}h", "%0\r\n"},
	{"SET {x}2 b", "{x}2", "EVAL return{redis.call('get',KEYS[1]),redis.call('get',KEYS[2])} 2 {x}1 {x}2",
		"*2\r\n$1\r\na\r\n_\r\n"},
}

// bulkEnd is the reply to "ECHO end".
const bulkEnd = "$3\r\nend\r\n"

// PushedInto has clients of the proxy ask for what the server puts a push into, by a lane and at
// their homes. Each is given its own replies, or told that they are lost. With whole, clients at
// home are given just what the server sends.
func PushedInto(t *testing.T, p *Proxy, server *testredis.Server, whole bool) {
	admin := Dial(t, server.Addr())
	for _, set := range []string{"SET {x}1 a", "SET {x}3 c"} {
		admin.Expect(set, "+OK\r\n")
	}
	keys := NewExpiring(t, server)
	t.Run("lane", func(t *testing.T) { keys.byLane(t, p, admin) })
	t.Run("home", func(t *testing.T) { keys.atHome(t, p, admin, whole) })
}

// puts is what the server itself sends who asks, up to bulkEnd.
func (e *Expiring) puts(set, key string, asks ...string) string {
	e.t.Helper()
	c := Dial(e.t, e.server.Addr())
	defer c.Close()
	c.Expect("HELLO 3", "%…")
	defer e.Set(set, key, strings.Trim(c.Do("CLIENT ID"), ":\r\n"))()
	c.Send(append(asks, "ECHO end")...)
	return c.Until(bulkEnd)
}

func (e *Expiring) byLane(t *testing.T, p *Proxy, admin *Conn) {
	var clients []*Conn
	for range 3 {
		c := Dial(t, p.Addr)
		c.Expect("HELLO 3", "%…")
		clients = append(clients, c)
	}
	lost := 0
	ask := func(c *Conn, want string) {
		t.Helper()
		switch got := c.Answer(); {
		case strings.HasPrefix(got, "-UPSTREAM") && strings.Contains(got, "is unknown"):
			lost++
		case got != want:
			t.Fatalf("got %q, want %q", got, want)
		}
	}
	for _, test := range pushedInto {
		within := !strings.Contains(e.puts(test.set, test.key, test.ask), test.want)
		for round, before := 0, lost; round < 3 || within && lost == before && round < 30; round++ {
			OpenLane(t, p.Addr, "HELLO 3")
			for i, c := range clients {
				c.Asked(fmt.Sprint("ECHO warm", i), fmt.Sprintf("$5\r\nwarm%d", i))
			}
			forget := e.Set(test.set, test.key, askedLast(admin, "echo")...)
			clients[0].Send("ECHO a", test.ask, "ECHO b")
			for i, c := range clients {
				c.Send(fmt.Sprint("ECHO e", i), fmt.Sprint("ECHO f", i))
			}
			for _, want := range []string{wire.Bulk("a"), test.want, wire.Bulk("b")} {
				ask(clients[0], want)
			}
			for i, c := range clients {
				ask(c, wire.Bulk(fmt.Sprint("e", i)))
				ask(c, wire.Bulk(fmt.Sprint("f", i)))
			}
			if forget(); within && lost == before && round == 29 {
				t.Errorf("%s: no push has come by a lane", test.ask)
			}
		}
	}
}

// askedLast are the ids of connections in RESP3 whose last request was such a command.
func askedLast(admin *Conn, command string) (ids []string) {
	admin.T.Helper()
	for line := range strings.SplitSeq(admin.Do("CLIENT LIST"), "\n") {
		_, rest, ok := strings.Cut(line, "id=")
		if ok && strings.Contains(line, "cmd="+command+" ") && strings.Contains(line, " resp=3") {
			ids = append(ids, strings.Fields(rest)[0])
		}
	}
	return ids
}

func (e *Expiring) atHome(t *testing.T, p *Proxy, admin *Conn, whole bool) {
	for _, test := range pushedInto {
		for _, asks := range [][]string{{test.ask}, {"MULTI", test.ask, "EXEC"},
			{"MULTI", "GET {x}1", test.ask, "EXEC"}} {
			want := e.puts(test.set, test.key, asks...)
			c := Dial(t, p.Addr)
			c.Expect("HELLO 3", "%…")
			c.Expect("WATCH {x}", "+OK\r\n")
			forget := e.Set(test.set, test.key, askedLast(admin, "watch")...)
			c.Send(append(asks, "ECHO end")...)
			if whole {
				if got := c.Until(bulkEnd); got != want {
					t.Errorf("%q: got %q, directly %q", asks, got, want)
				}
				c.Expect("ECHO more", wire.Bulk("more"))
			} else {
				c.ownOrLost(append(asks, "ECHO end"), test.want)
			}
			forget()
			c.Close()
		}
	}
}

// ownOrLost fails unless a client is given its own replies, or told that they are lost, as far as it
// is given any before it is closed.
func (c *Conn) ownOrLost(asks []string, want string) {
	c.T.Helper()
	allowed := map[string]bool{"+OK\r\n": true, "+QUEUED\r\n": true, want: true, bulkEnd: true,
		"*1\r\n" + want: true, "*2\r\n$1\r\na\r\n" + want: true}
	for range asks {
		got, err := c.TryReply()
		for err == nil && got[0] == '>' {
			got, err = c.TryReply()
		}
		if err != nil {
			return
		}
		if !allowed[got] && !strings.HasPrefix(got, "-UPSTREAM") {
			c.T.Errorf("%q: got %q", asks, got)
		}
	}
}
