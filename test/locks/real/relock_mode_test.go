package real_test

import (
	"fmt"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// RELOCK with a mode by real scripts: in RESP2 and RESP3, for a user who may do only what LOCK
// needs, without the rights for sorted sets, and on a full server.
func TestRelockChangesTheMode(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t, "--user", "app", "on", ">pw", "~app:*", "&*", "+@all",
		"-@dangerous", "--user", "plain", "on", ">pw", "~*", "&*", "+@all", "-@sortedset")
	a, b, plain := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	b.Do("HELLO 3 AUTH app pw")
	plain.Expect("AUTH plain pw", "+OK\r\n")
	relock := func(token int64, more string) string {
		return fmt.Sprintf("RELOCK app:doc %d 300 %s", token, more)
	}
	token := a.Lock("app:doc 300")
	plain.Expect(relock(token, "SHARED"), "-NOPERM …")
	a.Expect("LOCK app:doc 300 SHARED", "$-1\r\n")
	b.Send("LOCK app:doc 300 SHARED WAIT 0")
	proxytest.AwaitWaiters(t, p, "app:doc", 1)

	a.Expect(relock(token, "SHARED"), ":1\r\n")
	a.Expect(relock(token, "shared"), ":1\r\n")
	reader := proxytest.Token(t, b.Reply())
	b.Expect(relock(reader, "EXCLUSIVE"), "_\r\n")
	a.Expect(relock(token, "EXCLUSIVE"), "$-1\r\n")
	a.Expect("MULTI", "+OK\r\n")
	if got := a.Do(relock(token, "EXCLUSIVE")); !strings.HasPrefix(got, "-ERR ") {
		t.Errorf("in MULTI: %q", got)
	}
	a.Expect("DISCARD", "+OK\r\n")
	a.Expect("UNLOCK app:doc", ":1\r\n")
	plain.Expect(relock(reader, "EXCLUSIVE"), "-NOPERM …")
	writer := proxytest.Token(t, b.Do(relock(reader, "exclusive")))
	if writer <= reader {
		t.Errorf("token %d after %d", writer, reader)
	}
	b.Expect(relock(reader, ""), ":0\r\n")
	b.Expect(relock(writer, "SHARED"), ":1\r\n")
	token = a.Lock("app:doc 300 SHARED")
	c := proxytest.Dial(t, p.Addr)
	id := strings.Trim(b.Do("CLIENT ID"), ":\r\n")
	for _, how := range []string{"", " ERROR", "released"} {
		b.Send(relock(writer, "EXCLUSIVE WAIT 0"))
		testwait.Until(t, "it waits", func() bool {
			got := c.Do("LOCK app:doc 300 SHARED")
			if got != "$-1\r\n" {
				c.Expect(proxytest.Unlock("app:doc", proxytest.Token(t, got)), ":1\r\n")
			}
			return got == "$-1\r\n"
		})
		a.Expect(relock(token, "EXCLUSIVE WAIT 0"), "-DEADLOCK another …")
		if how == "released" {
			a.Expect(proxytest.Unlock("app:doc", token), ":1\r\n")
			writer = proxytest.Token(t, b.Reply())
			continue
		}
		a.Expect("CLIENT UNBLOCK "+id+how, ":1\r\n")
		b.WantReply(map[string]string{"": "_\r\n",
			" ERROR": "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n"}[how])
	}
	a.Expect("LOCK app:doc 300 SHARED", "$-1\r\n")
	b.Expect(proxytest.Unlock("app:doc", writer), ":1\r\n")
	token = a.Lock("app:doc 300")
	direct := proxytest.Dial(t, server.Addr())
	direct.Expect("CONFIG SET maxmemory 1", "+OK\r\n")
	a.Expect(relock(token, "SHARED"), ":1\r\n")
	full := proxytest.Token(t, a.Do(relock(token, "EXCLUSIVE")))
	direct.Expect("CONFIG SET maxmemory 0", "+OK\r\n")
	a.Expect(proxytest.Unlock("app:doc", full), ":1\r\n")
}
