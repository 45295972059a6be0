//go:build !race

package virtual_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// So is one that is about to be logged for its long wait: the log line names the holder.
func TestSlowWaitEndsWhileRedisIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		p := proxytest.Start(t, server.URL(), func(c *proxy.Config) {
			c.DialTimeout, c.Locks.SlowWait = time.Second, 150*time.Millisecond
		})
		holder := proxytest.Dial(t, p.Addr)
		holder.Lock("a 60")
		holder.Lock("b 60")
		waiters := []*proxytest.Conn{proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)}
		for i, command := range []string{"LOCK a 60 WAIT 2", "LOCKALL 60 2 b c WAIT 2"} {
			waiters[i].Expect("PING", "+PONG\r\n")
			waiters[i].Send(command)
		}
		proxytest.AwaitWaiters(t, p, "a", 1)
		proxytest.AwaitWaiters(t, p, "b", 1)
		server.Pause()
		for _, c := range waiters {
			got, err := c.TryReply()
			if err != nil || !strings.HasPrefix(got, "-UPSTREAM ") {
				t.Errorf("%q, %v; want UPSTREAM within 4s", got, err)
			}
		}
		server.Resume()
	})
}

// So are those that wait behind a LOCKALL, and a LOCKALL that waits behind others.
func TestLockAllWhileRedisIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		p := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.DialTimeout = time.Second })
		holder, first := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		holder.Lock("a 60")
		first.Send("LOCKALL 60 2 a b WAIT 0")
		proxytest.AwaitWaiters(t, p, "a", 1)
		var behind []*proxytest.Conn
		for i, command := range []string{"LOCK a 60 WAIT 3", "LOCKALL 60 2 c a WAIT 3"} {
			c := proxytest.Dial(t, p.Addr)
			c.Expect("PING", "+PONG\r\n")
			c.Send(command)
			proxytest.AwaitWaiters(t, p, "a", i+2)
			behind = append(behind, c)
		}
		server.Pause()
		for _, c := range behind {
			if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
				t.Errorf("%q, but Redis is silent", got)
			}
		}
		server.Resume()
		holder.Expect("UNLOCK a", ":1\r\n")
		proxytest.Token(t, first.Reply())
	})
}

// So are those behind a LOCKALL that does not poll, since it waits for its turn at another lock.
func TestWaitBehindLockAllWhileRedisIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		p := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.DialTimeout = time.Second })
		queue := func(command, key string, n int) *proxytest.Conn {
			c := proxytest.Dial(t, p.Addr)
			c.Expect("PING", "+PONG\r\n")
			c.Send(command)
			proxytest.AwaitWaiters(t, p, key, n)
			return c
		}
		holder := proxytest.Dial(t, p.Addr)
		holder.Lock("a 60")
		holder.Lock("b 60")
		queue("LOCK b 60 WAIT 0", "b", 1)
		queue("LOCKALL 60 2 a b WAIT 0", "a", 1)
		behind := []*proxytest.Conn{
			queue("LOCK a 60 WAIT 1.5", "a", 2), queue("LOCKALL 60 2 c a WAIT 1.5", "a", 3),
		}
		server.Pause()
		for _, c := range behind {
			if got := c.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
				t.Errorf("%q, but Redis is silent", got)
			}
		}
		server.Resume()
	})
}

// The first waiter is answered when its wait is over, even while Redis is silent, and not that
// another client holds the lock. A lock that its last poll takes later is released.
func TestWaitEndsWhileRedisIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		p := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.DialTimeout = time.Second })
		idle, held, owed, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		for _, c := range []*proxytest.Conn{idle, held, owed} {
			c.Expect("PING", "+PONG\r\n")
		}
		other.Lock("held 2")
		held.Send("LOCK held 60 WAIT 1.5")
		proxytest.AwaitWaiters(t, p, "held", 1)
		server.Pause()
		start := time.Now()
		within := func(c *proxytest.Conn, want string, bound time.Duration) {
			t.Helper()
			got, err := c.TryReply()
			if took := time.Since(start); err != nil || took > bound ||
				!strings.HasPrefix(got, "-UPSTREAM "+want) {
				t.Errorf("after %v: %q, %v; want UPSTREAM %s within %v", took, got, err, want, bound)
			}
		}
		// Redis can't say whether a client that comes only now must log in.
		newcomer := proxytest.Dial(t, p.Addr)
		newcomer.Send("LOCK new 60 WAIT 1")
		idle.Send("LOCK free 60 WAIT 1")
		owed.Send("GET x", "LOCK owed 60 WAIT 0.5")
		within(idle, "has not answered for", 2*time.Second)
		within(newcomer, "has not answered for", 2*time.Second)
		idle.Send("LOCK more 60 WAIT 0.5", "PING") // none piles up after the late one
		within(idle, "has not answered for", 4*time.Second)
		within(held, "", 4*time.Second)
		if owed.Arrived() {
			t.Errorf("%q came before the answer to GET", owed.Reply())
		}
		server.Resume()
		if got := idle.Reply(); got != "+PONG\r\n" {
			t.Errorf("the command after them: %q", got)
		}
		if got := owed.Reply(); got != "$-1\r\n" {
			t.Errorf("GET: %q", got)
		}
		if got := owed.Reply(); got[0] != ':' { // it had to wait for GET's reply, and then had its own
			t.Errorf("LOCK after GET: %q", got)
		}
		next := proxytest.Dial(t, p.Addr)
		for _, key := range []string{"new", "free", "more", "held"} {
			next.Lock(key + " 1 WAIT 3")
		}
		idle.Lock("again 5 WAIT 1")
	})
}

// A release that its client has sent behind a command that blocks names no waiter until then:
// another release hands the lock over at once.
func TestReleaseBehindABlockedCommandHoldsUpNoWaiter(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		elsewhere := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
		token := elsewhere.Lock("job 600")
		blocked, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		waiter.Send("LOCK job 600 WAIT 0")
		proxytest.AwaitWaiters(t, p, "job", 1)
		blocked.Send("BLPOP list 0", proxytest.Unlock("job", token))
		time.Sleep(time.Second)
		began := time.Now()
		elsewhere.Expect(proxytest.Unlock("job", token), ":1\r\n")
		proxytest.Token(t, waiter.Reply())
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("it has the lock after %v", took)
		}
		elsewhere.Expect("RPUSH list x", ":1\r\n")
		blocked.WantReply("*2\r\n$4\r\nlist\r\n$1\r\nx\r\n")
		blocked.WantReply(":0\r\n")
	})
}

// A poll that comes to Redis when its proxy no longer waits for its answer takes nothing, and lists
// nobody as waiting.
func TestAPollThatComesLateTakesNothing(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, server)
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		elsewhere := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
		for _, command := range []string{
			"LOCK job 600", "LOCK job 600 OWNER me", "LOCK job 600 SHARED", "LOCKALL 600 1 job",
		} {
			token := elsewhere.Lock("job 600")
			waiter := proxytest.Dial(t, p.Addr)
			waiter.Send(command + " WAIT 0")
			proxytest.AwaitWaiters(t, p, "job", 1)
			time.Sleep(time.Second)
			link.Freeze()
			time.Sleep(500 * time.Millisecond) // a poll is on its way
			elsewhere.Expect(proxytest.Unlock("job", token), ":1\r\n")
			token = proxytest.Token(t, waiter.Reply())
			elsewhere.Expect(proxytest.Unlock("job", token), ":1\r\n")
			time.Sleep(5 * time.Second) // its proxy has given up the connection
			link.Thaw()
			time.Sleep(time.Second)
			elsewhere.Expect("LOCKINFO job", "$-1\r\n")
			token = elsewhere.Lock("job 600")
			elsewhere.Expect("LOCKINFO job WAITERS", "*0\r\n")
			elsewhere.Expect(proxytest.Unlock("job", token), ":1\r\n")
		}
	})
}

// A client that disconnects while its poll is asked again leaves the queue at once, and what the
// polls have taken is released.
func TestAWaiterLeavesDuringItsPoll(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, server)
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		elsewhere := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
		const bound = 2 * time.Second // then its poll is asked again
		for i, command := range []string{
			"LOCK job 600", "LOCK job 600 OWNER me", "LOCK job 600 SHARED", "LOCKALL 600 1 job",
			"LOCK job 600", "LOCK job 600 OWNER me", "LOCK job 600 SHARED", "LOCKALL 600 1 job",
		} {
			asked := bound
			if i >= 4 {
				asked = 500 * time.Millisecond
			}
			token := elsewhere.Lock("job 600")
			waiter := proxytest.Dial(t, p.Addr)
			waiter.Send(command + " WAIT 0")
			proxytest.AwaitWaiters(t, p, "job", 1)
			time.Sleep(time.Second)
			link.HoldReplies()
			elsewhere.Expect(proxytest.Unlock("job", token), ":1\r\n")
			time.Sleep(asked) // its poll has taken the lock
			if elsewhere.Do("LOCKINFO job") == "$-1\r\n" {
				t.Errorf("%s: no poll has taken the lock", command)
			}
			waiter.Close()
			time.Sleep(bound - asked + 100*time.Millisecond)
			if n := p.Server.Stats().Locks.Waiters; n != 0 {
				t.Errorf("%s: %d clients wait", command, n)
			}
			link.Release()
			time.Sleep(time.Second)
			elsewhere.Expect("LOCKINFO job", "$-1\r\n")
		}
	})
}

// The wait of an owner ends since connections to Redis are silent. Its client asks again, and is given
// by another connection what a poll or a release has given to the first wait. When the answer to that
// comes the lock stays the client's, which relies on it.
func TestAnOwnerAsksAgainBeforeALateAnswer(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, server)
		p := proxytest.Start(t, "redis://"+link.Addr(), nil)
		elsewhere := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
		test := func(command string, here bool) {
			holder := elsewhere
			if here {
				holder = proxytest.Dial(t, p.Addr)
			}
			token := holder.Lock("job 600")
			waiter := proxytest.Dial(t, p.Addr)
			waiter.Send(command + " WAIT 1.6")
			proxytest.AwaitWaiters(t, p, "job", 1)
			time.Sleep(time.Second)
			link.Set(badlink.State{HoldUp: true})
			holder.Send(proxytest.Unlock("job", token))
			time.Sleep(300 * time.Millisecond)
			link.Freeze()
			link.Release() // what is on its way comes to Redis, and is not answered
			if got := waiter.Reply(); got[0] == ':' {
				t.Errorf("%s: %q", command, got)
			}
			token = proxytest.Token(t, waiter.Do(command+" WAIT 5"))
			link.Thaw()
			time.Sleep(time.Second)
			holder.WantReply(":1\r\n")
			elsewhere.Expect(proxytest.Unlock("job", token), ":1\r\n")
			waiter.Close()
			time.Sleep(time.Second)
		}
		for _, command := range []string{
			"LOCK job 600 OWNER me", "LOCK job 600 OWNER me SHARED", "LOCKALL 600 1 job OWNER me",
		} {
			test(command, false)
			test(command, true)
		}
	})
}

// While Redis is silent the first waiter's proxy begins to shut down, with its poll on a connection of
// the proxy's own. Its client is told so at once: it may have another proxy.
func TestDrainEndsAWaitWhileRedisIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		p := proxytest.Start(t, server.URL(), nil)
		holder := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
		for _, command := range []string{"LOCK job 60 WAIT 0", "LOCKALL 60 2 job b WAIT 0"} {
			token := holder.Lock("job 600")
			waiter := proxytest.Dial(t, p.Addr)
			waiter.Send(command)
			proxytest.AwaitWaiters(t, p, "job", 1)
			time.Sleep(time.Second)
			server.Pause()
			time.Sleep(3 * time.Second)
			ctx, end := context.WithTimeout(proxytest.Ctx, 20*time.Second)
			began, wait := time.Now(), proxytest.Shutdown(ctx, t, p)
			got, err := waiter.TryReply()
			if took := time.Since(began); err != nil || !strings.HasPrefix(got, "-TRYAGAIN ") ||
				took > time.Second {
				t.Errorf("%s: after %v: %q, %v", command, took, got, err)
			}
			server.Resume()
			if err := wait(); err != nil {
				t.Error(err)
			}
			end()
			holder.Expect(proxytest.Unlock("job", token), ":1\r\n")
			p = proxytest.Start(t, server.URL(), nil)
		}
	})
}
