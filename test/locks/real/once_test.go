package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
)

// A pipeline of ONCE, DONE and other commands is answered in order, by an event loop.
func TestOnceInAPipeline(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	token := proxytest.Token(t, c.Do("ONCE k 600"))
	server.Ask("SCRIPT", "FLUSH")
	c.Send("GET k", fmt.Sprintf("DONE k %d made EX 600", token), "ONCE k 600", "GET k",
		"ONCE k 600 WAIT 0", "ONCE other 600", "ONCE k 600 EARLY 900", "PING")
	c.WantReply("$-1\r\n")
	c.WantReply(":1\r\n")
	for range 3 {
		c.WantReply("$4\r\nmade\r\n")
	}
	proxytest.Token(t, c.Reply())
	again := proxytest.Token(t, c.Reply())
	c.WantReply("+PONG\r\n")
	other.Send("ONCE k 600 EARLY 900", "ONCE other 600", "ONCE k 600 EARLY 10 WAIT 0")
	other.WantReply("$4\r\nmade\r\n")
	other.WantReply("$-1\r\n")
	other.WantReply("$4\r\nmade\r\n")
	c.Expect(fmt.Sprintf("DONE k %d", again), ":1\r\n")
}

// What a user may not do to the value, ONCE and DONE may not do for it.
func TestOnceRights(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	as := func(user string) *proxytest.Conn {
		c := proxytest.Dial(t, p.Addr)
		c.Expect("AUTH "+user+" pw", "+OK\r\n")
		return c
	}
	for user, rights := range map[string][]string{
		"all":     {"~k*", "+@all"},
		"waiter":  {"~k*", "+@all", "-del"},
		"reader":  {"~k*", "+@all", "-set"},
		"blind":   {"~k*", "+@all", "-get"},
		"neither": {"~x*", "+@all"},
		"claims":  {"~k:once:*", "+@all"},
	} {
		server.Ask(append([]string{"ACL", "SETUSER", user, "on", ">pw", "&*"}, rights...)...)
	}
	all := as("all")
	token := proxytest.Token(t, all.Do("ONCE k 600"))
	for _, user := range []string{"blind", "neither", "claims"} {
		c := as(user)
		c.Expect("ONCE k 600", "-NOPERM …")
		c.Expect("ONCE k 600 WAIT 0", "-NOPERM …")
	}
	for _, user := range []string{"reader", "neither", "claims"} {
		c := as(user)
		c.Expect(fmt.Sprintf("DONE k %d stolen", token), "-NOPERM …")
	}
	if got := server.Ask("EXISTS", "k"); got != ":0" {
		t.Errorf("a user without the right stored a value: %s", got)
	}
	waiter := as("waiter")
	waiter.Send("ONCE k 600 WAIT 0")
	proxytest.AwaitWaiters(t, p, claimOf(t, all, "k"), 1)
	all.Expect(fmt.Sprintf("DONE k %d value", token), ":1\r\n")
	waiter.WantReply("$5\r\nvalue\r\n")
}

// claimOf is the name of the claim of a key that is being made.
func claimOf(t *testing.T, c *proxytest.Conn, key string) string {
	t.Helper()
	scan := c.Do("LOCKSCAN 0 MATCH " + key + ":once:* COUNT 100000")
	_, name, found := strings.Cut(scan, key+":once:")
	if !found {
		t.Fatalf("no claim of %q in %q", key, scan)
	}
	name, _, _ = strings.Cut(name, "\r\n")
	return key + ":once:" + name
}
