//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// LOCKINFO and LOCKLOG name who has not named itself by OWNER as its connection is called, also at
// another proxy, and however the lock came to it.
func TestConnectionsNames(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		elsewhere := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
		called := func(name string) *proxytest.Conn {
			c := proxytest.Dial(t, p.Addr)
			c.Expect("CLIENT SETNAME "+name, "+OK\r\n")
			return c
		}
		bulk := wire.Bulk
		has := func(got string, want ...string) {
			t.Helper()
			for _, part := range want {
				if !strings.Contains(got, part) {
					t.Errorf("%q lacks %q", got, part)
				}
			}
		}
		worker, next := called("worker-1"), called("worker-2")
		worker.Lock("job 60")
		next.Send("LOCK job 60 WAIT 0")
		proxytest.AwaitWaiters(t, p, "job", 1)
		for _, c := range []*proxytest.Conn{worker, elsewhere} {
			has(c.Do("LOCKINFO job"), bulk("client")+bulk(worker.LocalAddr().String()),
				bulk("owner")+"$0\r\n", bulk("name")+bulk("worker-1"))
		}
		has(worker.Do("LOCKINFO job HOLDERS"), bulk("client")+bulk(worker.LocalAddr().String()),
			bulk("name")+bulk("worker-1"))
		has(worker.Do("LOCKINFO job WAITERS"), bulk("name")+bulk("worker-2"))
		worker.Expect("UNLOCK job", ":1\r\n")
		proxytest.Token(t, next.Reply())
		has(elsewhere.Do("LOCKINFO job"), bulk("name")+bulk("worker-2"))
		elsewhere.Expect("UNLOCK job FORCE", ":1\r\n")
		has(worker.Do("LOCKLOG job COUNT 2"), bulk("owner")+bulk("worker-2"))

		worker.Lock("renewed 10 SESSION")
		time.Sleep(time.Minute)
		has(elsewhere.Do("LOCKINFO renewed"), bulk("name")+bulk("worker-1"))

		worker.Lock("doc 60 SHARED")
		next.Lock("doc 60 SHARED OWNER anna")
		elsewhere.Lock("doc 60 SHARED")
		has(elsewhere.Do("LOCKINFO doc HOLDERS"), bulk("name")+"$-1\r\n",
			bulk("owner")+bulk("anna"), bulk("name")+bulk("worker-2"), bulk("name")+bulk("worker-1"))
		worker.Expect("UNLOCK doc", ":1\r\n")
		elsewhere.Expect("UNLOCK doc FORCE", ":1\r\n")

		worker.Do("LOCKALL 60 2 a b")
		has(elsewhere.Do("LOCKINFO b"), bulk("name")+bulk("worker-1"))

		long := called(strings.Repeat("n", 100))
		long.Lock("long 60")
		has(elsewhere.Do("LOCKINFO long"), bulk("name")+bulk(strings.Repeat("n", 64)))
		long.Expect("CLIENT SETNAME |", "+OK\r\n")
		long.Lock("odd 60")
		has(elsewhere.Do("LOCKINFO odd"), bulk("name")+bulk("|"),
			bulk("client")+bulk(long.LocalAddr().String()))
		elsewhere.Lock("nobody's 60")
		has(worker.Do("LOCKINFO nobody's"), bulk("name")+"$-1\r\n")
	})
}

// LOCKINFO says for how long a lock has been held and that others wait at another proxy, whose name
// begins with its host's; LOCKLOG, how long ago things happened.
func TestHeldAndAgo(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		q := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) { cfg.Host = "web-2 (b)" })
		c, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, q.Addr)
		c.Lock("job 600")
		for i, null := range []string{"$-1", "_"} {
			time.Sleep(5 * time.Second)
			c.Do(fmt.Sprint("HELLO ", i+2))
			if got := c.Do("LOCKINFO job"); !strings.HasSuffix(got, fmt.Sprintf(
				"$4\r\nname\r\n%s\r\n$7\r\nheld_ms\r\n:%d\r\n$17\r\nwaiters_elsewhere\r\n:0\r\n", null,
				5000*(i+1))) {
				t.Errorf("LOCKINFO: %q", got)
			}
			if got := c.Do("LOCKLOG"); !strings.HasSuffix(got,
				fmt.Sprintf("$6\r\nago_ms\r\n:%d\r\n$4\r\nnote\r\n%s\r\n", 5000*(i+1), null)) {
				t.Errorf("LOCKLOG: %q", got)
			}
		}
		waiter.Send("LOCK job 60 WAIT 0")
		proxytest.AwaitListed(t, c, "job")
		if got := c.Do("LOCKINFO job"); !strings.Contains(got, "waiters\r\n:0\r\n") ||
			!strings.HasSuffix(got, "waiters_elsewhere\r\n:1\r\n") {
			t.Errorf("LOCKINFO: %q", got)
		}
		if got := c.Do("LOCKINFO job WAITERS"); !strings.Contains(got, "\r\nweb-2__b_.") {
			t.Errorf("LOCKINFO WAITERS: %q", got)
		}
		proxytest.Dial(t, q.Addr).Expect("UNLOCK job FORCE", ":1\r\n")
		proxytest.Token(t, waiter.Reply())

		direct := proxytest.GoRedis(t, server.Addr())
		direct.Set(proxytest.Ctx, "foreign", time.Now().UnixMilli()+60000, 0)
		direct.Set(proxytest.Ctx, "old", time.Now().UnixMilli()-60000, 0)
		for _, key := range []string{"foreign", "old"} {
			if got := c.Do("LOCKINFO " + key); !strings.Contains(got, "held_ms\r\n_\r\n") {
				t.Errorf("LOCKINFO %s: %q", key, got)
			}
		}
	})
}
