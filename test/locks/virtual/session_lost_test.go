//go:build !race

package virtual_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/internal/test/wire"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// toldWithin bounds what takes a message and a round trip; a renewal of a lock of 30 s would take
// 10 s.
const toldWithin = time.Second

// wantLost fails unless the client of a session lock is told soon that the lock is lost, and its
// connection closes.
func wantLost(t *testing.T, c *proxytest.Conn, proto, key string, token int64) {
	t.Helper()
	start := time.Now()
	if proto == "3" {
		want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n%s:%d\r\n", wire.Bulk(key), token)
		if got, err := c.TryReply(); got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	c.Closed()
	if took := time.Since(start); took > toldWithin {
		t.Errorf("it took %v", took)
	}
}

// A session lock is forced through another proxy, or there by an operator: its client is told at
// once, long before the next renewal.
func TestSessionLockForcedElsewhere(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		q := proxytest.Start(t, server.URL(), nil)
		other := proxytest.Dial(t, q.Addr)
		for _, proto := range []string{"2", "3"} {
			for _, way := range []string{"FORCE", "FORCE and a waiter", "operator"} {
				c := proxytest.Dial(t, p.Addr)
				c.Do("HELLO " + proto)
				token := c.Lock("job 30 SESSION")
				time.Sleep(100 * time.Millisecond) // until the proxy listens
				next := proxytest.Dial(t, q.Addr)
				if way == "FORCE and a waiter" {
					next.Send("LOCK job 30 WAIT 5")
					proxytest.AwaitWaiters(t, q, "job", 1)
				}
				if way == "operator" {
					f := lockcmd.ForcedUnlock{Key: "job", Token: token, Via: "admin"}
					if done, err := q.Server.Locks().Force(proxytest.Ctx, q.Server.Identity(),
						f); !done || err != nil {
						t.Errorf("forced: %v, %v", done, err)
					}
				} else {
					other.Expect("UNLOCK job FORCE", ":1\r\n")
				}
				wantLost(t, c, proto, "job", token)
				if way == "FORCE and a waiter" {
					if got := next.Reply(); got[0] != ':' { // which can come after the news
						t.Errorf("the waiter: got %q, want a token", got)
					}
					other.Expect("UNLOCK job FORCE", ":1\r\n")
				}
				next.Close()
			}
		}
	})
}

// So is the client of one that others share, whose key stays as it is, when its token is used
// elsewhere; and only that client.
func TestSharedSessionLockEndedElsewhere(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		q := proxytest.Start(t, server.URL(), nil)
		other := proxytest.Dial(t, q.Addr)
		for _, waits := range []bool{false, true} {
			c, sharer := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			c.Do("HELLO 3")
			token := c.Lock("job 30 SHARED SESSION")
			time.Sleep(100 * time.Millisecond) // until the proxy listens
			last := sharer.Lock("job 30 SHARED SESSION")
			if waits {
				next := proxytest.Dial(t, q.Addr)
				next.Send("LOCK job 30 WAIT 5")
				proxytest.AwaitWaiters(t, q, "job", 1)
				defer next.Close()
			}
			other.Expect(fmt.Sprintf("UNLOCK job %d", token), ":1\r\n")
			wantLost(t, c, "3", "job", token)
			sharer.Expect(fmt.Sprintf("UNLOCK job %d", last), ":1\r\n")
		}
	})
}

// A key that another client has overwritten with what is no lock is found at the next renewal, not
// when the lease is over.
func TestSessionLockOverwrittenElsewhere(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		c.Do("HELLO 3")
		token := c.Lock("job 2.1 SESSION")
		start := time.Now()
		proxytest.GoRedis(t, server.Addr()).Set(proxytest.Ctx, "job", "hello", 0)
		wantLost(t, c, "3", "job", token)
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v, a third of the timeout is 0.7 s", took)
		}
	})
}

// A session that could not renew its lock in time does not hide another one of its owner.
func TestSessionBehindOneThatWasNotRenewed(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		one, two := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := one.Lock("job 1 SESSION OWNER me")
		two.Lock("job 60 SESSION OWNER me")
		server.Pause()
		one.Closed()
		server.Resume()
		other := proxytest.Dial(t, p.Addr)
		other.Expect("UNLOCK job FORCE", ":1\r\n")
		wantLost(t, two, "2", "job", token)
	})
}

// A user that may not subscribe hears of it at the next renewal.
func TestSessionLockWithoutTheChannel(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		q := proxytest.Start(t, server.URL(), nil)
		other := proxytest.Dial(t, q.Addr)
		server.Refuse("NOPERM no channels", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE")
		c := proxytest.Dial(t, p.Addr)
		c.Expect("HELLO 3", "%…")
		token := c.Lock("job 1.5 SESSION")
		time.Sleep(100 * time.Millisecond)
		other.Expect("UNLOCK job FORCE", ":1\r\n")
		wantLost(t, c, "3", "job", token)
	})
}

// A release through another proxy while no messages come is found as soon as they come again, long
// before the next renewal.
func TestSessionLockWhileNothingIsHeard(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		other := proxytest.Dial(t, proxytest.Start(t, store.URL(), nil).Addr)
		c := proxytest.Dial(t, p.Addr)
		token := c.Lock("job 3600 SESSION")
		time.Sleep(100 * time.Millisecond) // the proxy subscribes
		store.Answer(func(client *server.Peer, _ []string) { client.Close() }, "SUBSCRIBE")
		time.Sleep(time.Minute)
		other.Expect("UNLOCK job FORCE", ":1\r\n")
		c.Expect("PING", "+PONG\r\n")
		store.Answer(nil, "SUBSCRIBE")
		began := time.Now()
		wantLost(t, c, "2", "job", token)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// The log says why a session lock was lost.
func TestSessionLockLossIsLogged(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		var log bytes.Buffer
		var mu sync.Mutex
		logged := func(cfg *proxy.Config) {
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: &mu})
		}
		p, q := proxytest.Start(t, server.URL(), logged), proxytest.Start(t, server.URL(), nil)
		other, elsewhere := proxytest.Dial(t, p.Addr), proxytest.Dial(t, q.Addr)
		for _, c := range []struct {
			by      *proxytest.Conn
			command string
			reason  string
		}{
			{other, "UNLOCK job FORCE", `reason="forced by ` + other.LocalAddr().String() + `"`},
			{other, "UNLOCK job %d", `reason="released with its token by `},
			{other, "DEL job", `reason="DEL by ` + other.LocalAddr().String() + `"`},
			{elsewhere, "UNLOCK job FORCE", `reason="the lock was released through another proxy"`},
			{elsewhere, "SET job hello", `reason="the key was overwritten"`},
			{elsewhere, "DEL job", `reason="the token no longer holds the lock: `},
		} {
			holder := proxytest.Dial(t, p.Addr)
			token := holder.Lock("job 1.5 SESSION")
			time.Sleep(100 * time.Millisecond)
			if strings.Contains(c.command, "%d") {
				c.command = fmt.Sprintf(c.command, token)
			}
			c.by.Do(c.command)
			holder.Closed()
			mu.Lock()
			lines := strings.Split(log.String(), "\n")
			log.Reset()
			mu.Unlock()
			if !slices.ContainsFunc(lines, func(line string) bool {
				return strings.Contains(line, "a session lock was lost: key=job") &&
					strings.Contains(line, fmt.Sprint("token=", token)) &&
					strings.Contains(line, c.reason)
			}) {
				t.Errorf("%s: the log says %q, want %s", c.command, lines, c.reason)
			}
			other.Do("DEL job")
		}
	})
}

// If the upstream refuses to renew a session lock, the log has its words: it has answered.
func TestSessionLockLossNamesTheRefusal(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		var log bytes.Buffer
		var mu sync.Mutex
		p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: &mu})
		})
		holder := proxytest.Dial(t, p.Addr)
		holder.Lock("job 1.5 SESSION")
		server.Refuse("NOPERM no scripts", "EVALSHA", "EVAL")
		holder.Closed()
		mu.Lock()
		defer mu.Unlock()
		want := `reason="not renewed in time: NOPERM no scripts"`
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log says %q, want %s", log.String(), want)
		}
	})
}

// When a token no longer holds its lock, all sessions of its owner are told, whichever learns it.
func TestUntrackedSessionsOfOneOwnerLoseTogether(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for _, mode := range []string{"", " SHARED"} {
			server, p := virtualtest.StartBoth(t)
			one, two := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			token := one.Lock("job 1.5" + mode + " SESSION OWNER me")
			two.Lock("job 60" + mode + " SESSION OWNER me")
			server.Ask("DEL", "job")
			wantLost(t, one, "2", "job", token)
			wantLost(t, two, "2", "job", token)
		}
	})
}
