//go:build !race

package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/virtualtest"
	"lockproxy/lockcmd"
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
		want := fmt.Sprintf(">3\r\n$8\r\nlocklost\r\n%s:%d\r\n", proxytest.Bulk(key), token)
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
				if way == "FORCE and a waiter" {
					next := proxytest.Dial(t, q.Addr)
					next.Send("LOCK job 30 WAIT 5")
					proxytest.AwaitWaiters(t, q, "job", 1)
					defer next.Close()
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
				other.Do("UNLOCK job FORCE")
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
