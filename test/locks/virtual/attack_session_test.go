//go:build !race

package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// A renewal that runs between an UNLOCK and its reply finds the lock gone, which is not a loss.
func TestAttackRenewalAfterUnlock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, relay, p := attackBoth(t)
		for _, how := range []string{"connection", "token", "force"} {
			c := proxytest.Dial(t, p.Addr)
			token := c.Lock("job 0.9 SESSION")
			_, release := relay.hold(t, false, how+" ")
			switch how {
			case "connection":
				c.Send("UNLOCK job")
			case "token":
				c.Send(proxytest.Unlock("job", token))
			case "force":
				c.Send("UNLOCK job FORCE")
			}
			time.AfterFunc(450*time.Millisecond, release)
			if got, err := c.TryReply(); got != ":1\r\n" {
				t.Errorf("by %s: %q, %v", how, got, err)
			}
			c.Expect("PING", "+PONG\r\n")
		}
	})
}

// An UNLOCK that frees nothing leaves the session lock renewed.
func TestAttackFailedUnlockKeepsRenewing(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := c.Lock("job 1 SESSION")
		c.Expect(proxytest.Unlock("job", token+1), ":0\r\n")
		time.Sleep(1500 * time.Millisecond)
		other.Expect("LOCK job 30", "$-1\r\n")
		c.Expect(proxytest.Unlock("job", token), ":1\r\n")
	})
}

// RELOCK gives a session lock a new timeout, with which it is renewed.
func TestAttackRelockOfSessionLock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := c.Lock("short 30 SESSION")
		c.Expect(fmt.Sprintf("RELOCK short %d 1", token), ":1\r\n")
		long := c.Lock("long 1 SESSION")
		c.Expect(fmt.Sprintf("RELOCK long %d 30", long), ":1\r\n")
		time.Sleep(1500 * time.Millisecond)
		other.Expect("LOCK short 30", "$-1\r\n")
		ttl := proxytest.GoRedis(t, server.Addr()).PTTL(proxytest.Ctx, "long").Val()
		if ttl < 20*time.Second {
			t.Errorf("the renewal has shortened the lock to %v", ttl)
		}
		c.Expect(proxytest.Unlock("short", token), ":1\r\n")
		c.Expect(proxytest.Unlock("long", long), ":1\r\n")
	})
}

// An owner whose connection breaks before it has read that
// its lock was renewed still holds it: it knows the token.
func TestAttackUnreadRenewal(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		for i, command := range []string{"LOCK job%d 60 OWNER me", "LOCK job%d 60 WAIT 5 OWNER me"} {
			key := fmt.Sprint("job", i)
			c, again, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
				proxytest.Dial(t, p.Addr)
			token := c.Lock(key + " 30 OWNER me")
			c.Send(fmt.Sprintf(command, i))
			testwait.Until(t, "the lock is renewed", func() bool {
				return direct.PTTL(proxytest.Ctx, key).Val() > 30*time.Second
			})
			time.Sleep(5 * time.Millisecond)
			c.Close() // with the reply unread, which makes it a reset
			other.Expect("LOCK "+key+" 30 WAIT 0.3", "$-1\r\n")
			if got := again.Lock(key + " 30 OWNER me"); got != token {
				t.Errorf("%s: got %d, want %d", command, got, token)
			}
		}
	})
}

// A connection with many session locks ends in bounded time even if the upstream hangs.
func TestAttackManySessionLocksAndAHungUpstream(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		p := proxytest.Start(t, server.URL(), nil)
		c := proxytest.Dial(t, p.Addr)
		for i := range 20 {
			c.Lock(fmt.Sprintf("job%d 3600 SESSION", i))
		}
		server.Pause()
		defer server.Resume()
		c.Close()
		start := time.Now()
		p.Server.Close()
		if took := time.Since(start); took > 8*time.Second {
			t.Errorf("closing took %v", took)
		}
	})
}

// A session lock with a very short timeout is either kept or
// reported lost, and doesn't keep the upstream busy.
func TestAttackShortSessionLocks(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		for i := range 50 {
			c := proxytest.Dial(t, p.Addr)
			c.Do("HELLO 3")
			c.Do(fmt.Sprintf("LOCK job%d 0.001 SESSION", i))
		}
		before := server.Scripts()
		time.Sleep(time.Second)
		after := server.Scripts()
		if after-before > 5000 {
			t.Errorf("%d scripts/s for 50 locks", after-before)
		}
	})
}
