package locks_test

// Where the upstream tells of changes by CLIENT TRACKING, nobody polls often, and a change past the
// proxy is noticed at once. Where it does not, all works as before.

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// setUntracked has a proxy's user without CLIENT TRACKING.
func setUntracked(direct *redis.Client) {
	direct.Do(proxytest.Ctx, "ACL", "SETUSER", "default", "-client|tracking")
}

// commandsDuring counts the commands that a Redis runs during a time.
func commandsDuring(t *testing.T, direct *redis.Client, d time.Duration) int64 {
	_, before := scriptCalls(t, direct)
	time.Sleep(d)
	_, after := scriptCalls(t, direct)
	return int64(after - before)
}

// awaitSilence waits until the only waiter relies on CLIENT TRACKING: it does not poll any more.
func awaitSilence(t *testing.T, direct *redis.Client) {
	t.Helper()
	testwait.Until(t, "nobody polls", func() bool {
		return commandsDuring(t, direct, 300*time.Millisecond) == 0
	})
}

// awaitTracking waits until a connection of the proxy tracks keys, as many as there should be.
func awaitTracking(t *testing.T, direct *redis.Client, keys string) {
	t.Helper()
	testwait.Until(t, "keys are tracked", func() bool {
		info := direct.Info(proxytest.Ctx, "all").Val()
		return strings.Contains(info, "\r\ntracking_total_keys:"+keys+"\r\n")
	})
}

func TestWaiterTracksForeignLock(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		tracked bool
	}{{"tracked", true}, {"not allowed", false}} {
		t.Run(c.name, func(t *testing.T) {
			server, p := proxytest.StartBoth(t)
			direct := proxytest.GoRedis(t, server.Addr())
			if !c.tracked {
				setUntracked(direct)
			}
			waiter := proxytest.Dial(t, p.Addr)
			for range 3 {
				direct.SetNX(proxytest.Ctx, "job", "random", time.Minute)
				waiter.Send("LOCK job 300 WAIT 300")
				proxytest.AwaitWaiters(t, p, "job", 1)
				atMost := int64(400) // of 80 scripts
				if c.tracked {
					awaitSilence(t, direct)
					atMost = 1
				}
				if n := commandsDuring(t, direct, time.Second); n > atMost {
					t.Errorf("%d commands in a second", n)
				}
				direct.Del(proxytest.Ctx, "job")
				if got := waiter.Reply(); got[0] != ':' {
					t.Fatalf("%q", got)
				}
				waiter.Expect("UNLOCK job", ":1\r\n")
			}
		})
	}
}

// A waiter that does not poll does so again at once when the connection that tracks is lost.
func TestWaiterPollsWhenTrackingEnds(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	direct.SetNX(proxytest.Ctx, "job", "random", time.Minute)
	waiter := proxytest.Dial(t, p.Addr)
	waiter.Send("LOCK job 300 WAIT 300")
	awaitSilence(t, direct)
	setUntracked(direct)
	killTracking(direct)
	testwait.Until(t, "the waiter polls often", func() bool {
		return commandsDuring(t, direct, 100*time.Millisecond) > 2
	})
	direct.Del(proxytest.Ctx, "job")
	if got := waiter.Reply(); got[0] != ':' {
		t.Errorf("%q after the DEL", got)
	}
}

// Waiters that rely on CLIENT TRACKING are not told that the lock is held when nobody knows that.
func TestTrackedLockWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	direct.SetNX(proxytest.Ctx, "job", "random", time.Minute)
	first, second := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	for _, c := range []*proxytest.Conn{first, second} {
		c.Send("LOCK job 300 WAIT 0.1")
		if got := c.Reply(); got != "$-1\r\n" {
			t.Fatalf("%q", got)
		}
	}
	first.Send("LOCK job 300 WAIT 3")
	proxytest.AwaitWaiters(t, p, "job", 1)
	second.Send("LOCK job 300 WAIT 3")
	awaitSilence(t, direct)
	server.Pause()
	defer server.Resume()
	for _, c := range []*proxytest.Conn{first, second} {
		got, err := c.TryReply()
		if err != nil || !strings.HasPrefix(got, "-UPSTREAM ") {
			t.Errorf("told %q, %v", got, err)
		}
	}
}

// A release that nobody is told of, here a DEL, is noticed at once by a waiter that tracks.
func TestWaiterTracksLock(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	for range 5 {
		direct.Del(proxytest.Ctx, "job")
		holder.Lock("job 300")
		waiter.Send("LOCK job 300 WAIT 300")
		proxytest.AwaitWaiters(t, p, "job", 1)
		awaitTracking(t, direct, "1")
		direct.Del(proxytest.Ctx, "job")
		if got := waiter.Reply(); got[0] != ':' {
			t.Errorf("%q after the DEL", got)
		}
	}
}

func TestSessionTracksItsLock(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*redis.Client){
		"deleted":     func(r *redis.Client) { r.Del(proxytest.Ctx, "job") },
		"overwritten": func(r *redis.Client) { r.Set(proxytest.Ctx, "job", "x", time.Minute) },
		"data":        func(r *redis.Client) { r.Set(proxytest.Ctx, "job", "x", 0) },
		"flushed":     func(r *redis.Client) { r.FlushAll(proxytest.Ctx) },
		"expired":     func(r *redis.Client) { r.PExpire(proxytest.Ctx, "job", time.Millisecond) },
	} {
		t.Run(name, func(t *testing.T) {
			server, p := proxytest.StartBoth(t)
			direct := proxytest.GoRedis(t, server.Addr())
			c := proxytest.Dial(t, p.Addr)
			c.Lock("job 60 SESSION")
			awaitTracking(t, direct, "1")
			time.Sleep(20 * time.Millisecond) // it is verified once
			c.Do("PING")
			change(direct)
			c.Closed()
		})
	}
}

// Its own renewals do not end a session lock, nor does the end of the connection that tracks.
func TestTrackedSessionKeepsItsLock(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), nil)
	direct := proxytest.GoRedis(t, server.Addr())
	c := proxytest.Dial(t, p.Addr)
	token := c.Lock("job 1.5 SESSION")
	awaitTracking(t, direct, "1")
	for range 10 {
		killTracking(direct)
		time.Sleep(150 * time.Millisecond)
		c.Expect("PING", "+PONG\r\n")
	}
	c.Expect(proxytest.Unlock("job", token), ":1\r\n")
}

// killTracking closes the connections that track keys.
func killTracking(direct *redis.Client) {
	for line := range strings.SplitSeq(direct.ClientList(proxytest.Ctx).Val(), "\n") {
		if fields := strings.Fields(line); strings.Contains(line, "flags=t") {
			direct.ClientKillByFilter(proxytest.Ctx, "ID", strings.TrimPrefix(fields[0], "id="))
		}
	}
}
