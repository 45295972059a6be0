//go:build !race

package virtual_test

import (
	"strconv"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// A lock taken over from an expired foreign client stays its holder's although the loser of the
// race, which had read the expired value too, replaces the timestamp. The proxy repairs it.
func TestTakeoverGracePeriod(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		direct.Set(proxytest.Ctx, "job", time.Now().Unix()-10, 0)
		token := a.Lock("job 30")
		written := direct.Get(proxytest.Ctx, "job").Val()
		loser := strconv.FormatInt(time.Now().Unix()+5, 10)
		if old, _ := direct.Do(proxytest.Ctx, "GETSET", "job", loser).Text(); old != written {
			t.Fatalf("GETSET returned %s, want %s", old, written)
		}
		b.Expect("LOCK job 30", "$-1\r\n")
		testwait.Until(t, "the timestamp is repaired", func() bool {
			return direct.Get(proxytest.Ctx, "job").Val() == written
		})
		if ttl := direct.PTTL(proxytest.Ctx, "job").Val(); ttl < 25*time.Second {
			t.Errorf("repaired with a TTL of %v", ttl)
		}
		// Even with an expired timestamp it is refused to others and released by its holder.
		direct.Set(proxytest.Ctx, "job", time.Now().Unix()-10, 0)
		b.Expect("LOCK job 30", "$-1\r\n")
		direct.Set(proxytest.Ctx, "job", time.Now().Unix()-10, 0)
		a.Expect(proxytest.Unlock("job", token), ":1\r\n")
		b.Expect("EXISTS job", ":0\r\n")
	})
}

// The loser's write can come even after the winner has released the lock and it was taken again:
// the grace period continues.
func TestNextLockInGracePeriod(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		for _, handOver := range []bool{false, true} {
			direct.Set(proxytest.Ctx, "job", time.Now().Unix()-10, 0)
			a.Lock("job 30")
			holder := a
			if handOver {
				b.Send("LOCK job 30 WAIT 5")
				proxytest.AwaitWaiters(t, p, "job", 1)
				a.Expect("UNLOCK job", ":1\r\n")
				if got := b.Reply(); got[0] != ':' {
					t.Fatalf("%q", got)
				}
				holder = b
			} else {
				a.Expect("UNLOCK job", ":1\r\n")
				a.Lock("job 30")
			}
			written, _ := direct.Do(proxytest.Ctx, "GETSET", "job", time.Now().Unix()+2).Text()
			testwait.Until(t, "the timestamp is repaired", func() bool {
				return direct.Get(proxytest.Ctx, "job").Val() == written
			})
			holder.Expect("UNLOCK job", ":1\r\n")
			direct.FlushAll(proxytest.Ctx)
		}
	})
}

// In the grace period the owner asks again through another proxy, since its own is gone: the other
// proxy repairs the timestamp.
func TestOwnerReturnsInGracePeriod(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, first := virtualtest.StartBoth(t)
		second := proxytest.Start(t, server.URL(), nil)
		direct := proxytest.GoRedis(t, server.Addr())
		direct.Set(proxytest.Ctx, "job", time.Now().Unix()-10, 0)
		token := proxytest.Dial(t, first.Addr).Lock("job 30 OWNER me")
		first.Server.Close()
		c := proxytest.Dial(t, second.Addr)
		if again := c.Lock("job 30 OWNER me"); again != token {
			t.Fatalf("its owner got token %d, had %d", again, token)
		}
		written := direct.Get(proxytest.Ctx, "job").Val()
		direct.Do(proxytest.Ctx, "GETSET", "job", strconv.FormatInt(time.Now().Unix()+5, 10))
		testwait.Until(t, "the timestamp is repaired", func() bool {
			return direct.Get(proxytest.Ctx, "job").Val() == written
		})
		time.Sleep(2 * time.Second) // the grace period is over
		c.Expect(proxytest.Unlock("job", token), ":1\r\n")
	})
}
