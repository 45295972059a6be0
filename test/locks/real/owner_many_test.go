package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd/keyname"
)

// However many connections of an owner have its session lock, at several proxies, it is released
// with the last of them, and not before.
func TestOwnersManySessions(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	q := proxytest.Start(t, server.URL(), nil)
	for _, mode := range []string{"", "SHARED "} {
		key := "job:" + strings.TrimSpace(mode)
		var list []*proxytest.Conn
		token := int64(0)
		for i := range 30 {
			c := proxytest.Dial(t, []string{p.Addr, q.Addr}[i%2])
			got := c.Lock(fmt.Sprintf("%s 600 %sSESSION OWNER o", key, mode))
			if token != 0 && got != token {
				t.Fatalf("token %d, then %d", token, got)
			}
			token = got
			list = append(list, c)
		}
		connections := func() int { // of the lock's record, on the server
			record := server.Ask("EVAL", `local r = redis.pcall('GET', KEYS[1])
				if type(r) == 'table' then
					r = redis.call('ZRANGEBYSCORE', KEYS[1], '-9007199254740992', '(0')[1]
				end
				return string.match(r, ' (%S+%-%d+%S*) %d+ ')`, "1", keyname.Record([]byte(key)))
			return strings.Count(record, "-")
		}
		if n := connections(); n != 30 {
			t.Errorf("%q: %d connections have the lock", mode, n)
		}
		for _, c := range list[1:] {
			c.Close()
		}
		testwait.Until(t, "the others have left the lock", func() bool { return connections() == 1 })
		waiter := proxytest.Dial(t, p.Addr)
		waiter.Expect("LOCK "+key+" 600", "$-1\r\n")
		waiter.Send("LOCK " + key + " 600 WAIT 0")
		proxytest.AwaitWaiters(t, p, key, 1)
		list[0].Close()
		if next := proxytest.Token(t, waiter.Reply()); next <= token {
			t.Errorf("token %d follows %d", next, token)
		}
		waiter.Close()
	}
}

// Connections that asked without SESSION keep the lock until its timeout, however many there are,
// and don't make its record longer and longer.
func TestOwnersManyRetries(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	holder := proxytest.Dial(t, p.Addr)
	token := holder.Lock("job 600 SESSION OWNER o")
	for range 40 {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("LOCK job 600 OWNER o", fmt.Sprintf(":%d\r\n", token))
		c.Close()
	}
	session := proxytest.Dial(t, p.Addr)
	session.Expect("LOCK job 600 SESSION OWNER o", fmt.Sprintf(":%d\r\n", token))
	record := server.Ask("GET", keyname.Record([]byte("job")))
	if n := len(record); n > 600 || strings.Count(record, "~") != 7 {
		t.Errorf("the record has %d bytes: %q", n, record)
	}
	left := func(n int) { // sessions
		t.Helper()
		testwait.Until(t, "a session leaves the lock", func() bool {
			record := server.Ask("GET", keyname.Record([]byte("job")))
			list := strings.Split(strings.Fields(record)[8], ",")
			return len(list) == n+8
		})
	}
	holder.Close()
	left(1)
	session.Close()
	left(0)
	proxytest.Dial(t, p.Addr).Expect("LOCK job 600", "$-1\r\n")
}

// A session lock that many connections of its owner have is forced: each of them is told.
func TestOwnersManySessionsAreTold(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	q := proxytest.Start(t, server.URL(), nil)
	var list []*proxytest.Conn
	for i := range 30 {
		c := proxytest.Dial(t, []string{p.Addr, q.Addr}[i%2])
		c.Lock("job 600 SESSION OWNER o")
		list = append(list, c)
	}
	proxytest.Dial(t, p.Addr).Expect("UNLOCK job FORCE", ":1\r\n")
	for _, c := range list {
		c.Closed()
	}
}
