package real_test

// Where the upstream tells of changes by CLIENT TRACKING, nobody polls often, and a change past the
// proxy is noticed at once. Where it does not, all works as before.

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd/keyname"
)

// setUntracked has a proxy's user without CLIENT TRACKING.
func setUntracked(direct *redis.Client) {
	direct.Do(proxytest.Ctx, "ACL", "SETUSER", "default", "-client|tracking")
}

// polls is how often a waiter has polled, which it does each 210 to 245 ms. Tests count these
// instead of milliseconds: a busy machine delays all waiters.
type polls struct {
	t *testing.T
	n atomic.Int64
}

func startPolls(t *testing.T) *polls {
	t.Helper()
	server, proxy := proxytest.StartBoth(t)
	holder, waiter := proxytest.Dial(t, proxy.Addr), proxytest.Dial(t, proxy.Addr)
	holder.Do("ONCE job 3600")
	waiter.Send("ONCE job 3600 WAIT 0") // it polls, also when nothing happens
	proxytest.AwaitWaiters(t, proxy, keyname.Claim([]byte("job")), 1)
	p, direct := &polls{t: t}, proxytest.GoRedis(t, server.Addr())
	var over atomic.Bool
	var counting sync.WaitGroup
	t.Cleanup(func() { over.Store(true); counting.Wait() })
	counting.Go(func() { // ends with the test
		for !over.Load() {
			testwait.Holds(func() bool {
				n, _ := scriptCalls(t, direct)
				p.n.Store(int64(n))
				return over.Load()
			})
		}
	})
	return p
}

// pass waits for n polls.
func (p *polls) pass(n int64) {
	until := p.n.Load() + n
	testwait.Holds(func() bool { return p.n.Load() >= until })
}

// commandsDuring counts the commands that a Redis runs between some polls.
func (p *polls) commandsDuring(direct *redis.Client, n int64) int64 {
	p.t.Helper()
	p.pass(1)
	_, before := scriptCalls(p.t, direct)
	p.pass(n)
	_, after := scriptCalls(p.t, direct)
	return int64(after - before)
}

// awaitSilence waits until the only waiter relies on CLIENT TRACKING: it does not poll any more.
func (p *polls) awaitSilence(direct *redis.Client) {
	p.t.Helper()
	testwait.Until(p.t, "nobody polls", func() bool { return p.commandsDuring(direct, 2) == 0 })
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
			t.Parallel()
			server, p := proxytest.StartBoth(t)
			direct := proxytest.GoRedis(t, server.Addr())
			if !c.tracked {
				setUntracked(direct)
			}
			waiter, polls := proxytest.Dial(t, p.Addr), startPolls(t)
			for range 2 {
				direct.SetNX(proxytest.Ctx, "job", "random", time.Hour)
				waiter.Send("LOCK job 300 WAIT 300")
				proxytest.AwaitWaiters(t, p, "job", 1)
				// A Redis that stops is polled again for a while.
				testwait.Until(t, "nobody polls", func() bool {
					return !c.tracked || polls.commandsDuring(direct, 4) <= 1
				})
				// 500 scripts in about a second; without a pause there are many thousands
				if n := polls.commandsDuring(direct, 4); n > 2500 {
					t.Errorf("%d commands in about a second", n)
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
	direct.SetNX(proxytest.Ctx, "job", "random", time.Hour)
	waiter := proxytest.Dial(t, p.Addr)
	waiter.Send("LOCK job 300 WAIT 300")
	polls := startPolls(t)
	polls.awaitSilence(direct)
	setUntracked(direct)
	killTracking(direct)
	testwait.Until(t, "the waiter polls often", func() bool {
		return polls.commandsDuring(direct, 1) > 4
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
	direct.SetNX(proxytest.Ctx, "job", "random", time.Hour)
	first, second := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	for _, c := range []*proxytest.Conn{first, second} {
		c.ExpectInTime("LOCK job 300 WAIT 0.1", "$-1\r\n")
	}
	polls := startPolls(t)
	pausedInTime(t, server, func() {
		first.Send("LOCK job 300 WAIT 3")
		proxytest.AwaitWaiters(t, p, "job", 1, first)
		second.Send("LOCK job 300 WAIT 3")
		polls.awaitSilence(direct)
	}, first, second)
}

// pausedInTime pauses a server behind wait, which has clients wait for a few seconds, and fails
// unless they are told that it is silent. If a busy machine lets their time pass before, it tries
// again.
func pausedInTime(t *testing.T, server *testredis.Server, wait func(), clients ...*proxytest.Conn) {
	t.Helper()
	told := map[string]int{}
	for range 20 {
		wait()
		server.Pause()
		silent := 0
		for _, c := range clients {
			got := c.Reply()
			if told[got]++; strings.HasPrefix(got, "-UPSTREAM ") {
				silent++
			}
		}
		server.Resume()
		if silent == len(clients) {
			return
		}
	}
	t.Errorf("told %v", told)
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
			c.Lock("job 300 SESSION")
			awaitTracking(t, direct, "1")
			c.Do("PING")
			change(direct)
			c.Closed()
		})
	}
}

// Its own renewals do not end a session lock, nor does the end of the connection that tracks, which
// another replaces.
func TestTrackedSessionKeepsItsLock(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	direct := proxytest.GoRedis(t, server.Addr())
	for i := range 2 {
		c := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
		key := fmt.Sprint("job:", i)
		token := c.Lock(key + " 300 SESSION")
		awaitTracking(t, direct, "1")
		c.Expect(fmt.Sprintf("RELOCK %s %d 300", key, token), ":1\r\n") // as a renewal does it
		c.Expect("PING", "+PONG\r\n")
		before := trackers(direct)
		killTracking(direct)
		testwait.Until(t, "another connection tracks", func() bool {
			now := trackers(direct)
			return len(now) > 0 && !slices.ContainsFunc(now, func(one map[string]string) bool {
				return slices.ContainsFunc(before, func(other map[string]string) bool {
					return other["id"] == one["id"]
				})
			})
		})
		c.Expect("PING", "+PONG\r\n")
		c.Expect(proxytest.Unlock(key, token), ":1\r\n")
	}
}

// killTracking closes the connections that track keys.
func killTracking(direct *redis.Client) {
	for _, one := range trackers(direct) {
		direct.ClientKillByFilter(proxytest.Ctx, "ID", one["id"])
	}
}
