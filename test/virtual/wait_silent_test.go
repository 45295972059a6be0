//go:build !race

package virtual_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/virtualtest"
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
