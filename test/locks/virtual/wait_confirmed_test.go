//go:build !race

package virtual_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// The connection of the first waiter falls silent between its script and the confirmation of
// replicas. When the lock has run out, the next one is given it.
func TestConfirmationOfAWaitIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		link := proxytest.LinkTo(t, store)
		p := proxytest.Start(t, "redis://"+link.Addr(), proxytest.WithReplicas(1))
		var freezes atomic.Bool
		store.Answer(func(client *server.Peer, _ []string) {
			if freezes.CompareAndSwap(true, false) {
				link.Freeze()
			}
			client.WriteInt(1)
		}, "WAIT")
		holder := proxytest.Dial(t, proxytest.Start(t, store.URL(), nil).Addr)
		token := holder.Lock("a 600")
		first, second := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		first.Send("LOCK a 1 WAIT 0")
		proxytest.AwaitWaiters(t, p, "a", 1)
		second.Send("LOCK a 60 WAIT 0")
		proxytest.AwaitWaiters(t, p, "a", 2)
		time.Sleep(5 * time.Second)
		freezes.Store(true)
		holder.Expect(proxytest.Unlock("a", token), ":1\r\n")
		released := time.Now()
		proxytest.Token(t, second.Reply())
		if took := time.Since(released); took > 10*time.Second {
			t.Errorf("the second has the lock after %v", took)
		}
		link.Thaw()
	})
}

// The connection on which a client tracks keys falls silent before it waits for a lock. It is given
// the lock, and told so.
func TestAWaitBehindASilentHome(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store := virtualtest.StartStore(t)
		store.Answer(func(client *server.Peer, args []string) {
			switch strings.ToUpper(args[0]) {
			case "TRACKING":
				client.WriteOK()
			case "ID":
				client.WriteInt(42)
			default:
				client.WriteError("ERR unknown subcommand")
			}
		}, "CLIENT")
		link := proxytest.LinkTo(t, store)
		p := proxytest.Start(t, "redis://"+link.Addr(), func(c *proxy.Config) {
			c.Dedicated = false
		})
		holder := proxytest.Dial(t, proxytest.Start(t, store.URL(), nil).Addr)
		token := holder.Lock("a 600")
		tracks := proxytest.Dial(t, p.Addr)
		tracks.Asked("HELLO 3", "%")
		tracks.Expect("CLIENT TRACKING ON", "+OK\r\n")
		time.Sleep(2 * time.Second)
		link.Freeze()
		tracks.Send("LOCK a 10 SESSION WAIT 0")
		proxytest.AwaitWaiters(t, p, "a", 1)
		time.Sleep(10 * time.Second)
		holder.Expect(proxytest.Unlock("a", token), ":1\r\n")
		released := time.Now()
		proxytest.Token(t, tracks.Reply())
		if took := time.Since(released); took > 5*time.Second {
			t.Errorf("it is told after %v", took)
		}
		link.Thaw()
	})
}

// The connection of a session falls silent that asks for its shared lock alone: when the lock has
// ended, the session is told.
func TestExclusiveOfASessionIsSilent(t *testing.T) {
	for _, command := range []string{"60 EXCLUSIVE", "60 EXCLUSIVE WAIT 0", "10 EXCLUSIVE WAIT 1"} {
		virtualtest.Run(t, func(t *testing.T) {
			store := virtualtest.StartStore(t)
			link := proxytest.LinkTo(t, store)
			p := proxytest.Start(t, "redis://"+link.Addr(), nil)
			a, b := proxytest.Dial(t, p.Addr),
				proxytest.Dial(t, proxytest.Start(t, store.URL(), nil).Addr)
			token := a.Lock("doc 10 SHARED SESSION")
			b.Lock("doc 20 SHARED")
			if strings.Contains(command, "WAIT") {
				a.Send(relock("doc", token, command))
				time.Sleep(500 * time.Millisecond)
				link.Freeze()
			} else {
				link.Freeze()
				a.Send(relock("doc", token, command))
			}
			time.Sleep(25 * time.Second)
			if b.Lock("doc 600"); !a.Arrived() {
				t.Errorf("%s: another client has the lock, and the session is not told", command)
			}
			link.Thaw()
			time.Sleep(time.Minute)
			if got := b.Do("LOCKINFO doc"); !strings.Contains(got, "exclusive") {
				t.Errorf("%s: LOCKINFO %q", command, got)
			}
		})
	}
}

// The question of a waiter that is not first, whether it may lock at all, has no answer for a
// while: it waits on.
func TestACheckIsSilent(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		holder, first, second := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
			proxytest.Dial(t, p.Addr)
		token := holder.Lock("a 600")
		first.Send("LOCK a 60 WAIT 0")
		proxytest.AwaitWaiters(t, p, "a", 1)
		second.Expect("PING", "+PONG\r\n")
		store.Pause()
		second.Send("LOCK a 60 WAIT 0 OWNER me") // others may not ask for it
		time.Sleep(5 * time.Second)
		store.Resume()
		time.Sleep(5 * time.Second)
		holder.Expect(proxytest.Unlock("a", token), ":1\r\n")
		first.Expect(proxytest.Unlock("a", proxytest.Token(t, first.Reply())), ":1\r\n")
		proxytest.Token(t, second.Reply())
	})
}

// The counters tell the first LOCK of an owner from the next, and a release that hands the lock
// over from one that does not.
func TestCountersOfLocks(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := c.Lock("a 600 OWNER me")
		c.Lock("a 600 OWNER me")
		c.Expect(proxytest.Unlock("a", token), ":1\r\n")
		c.Lock("a 600 SHARED")
		c.Expect("UNLOCK a", ":1\r\n")
		got := p.Server.Stats().Locks
		if got.Acquired != 2 || got.Renewed != 1 || got.HandedOver != 0 {
			t.Errorf("%d were acquired, %d renewed, %d handed over", got.Acquired, got.Renewed,
				got.HandedOver)
		}
		c.Lock("a 600")
		waiter.Send("LOCK a 600 WAIT 0")
		proxytest.AwaitWaiters(t, p, "a", 1)
		time.Sleep(time.Second)
		c.Expect("UNLOCK a", ":1\r\n")
		proxytest.Token(t, waiter.Reply())
		if got := p.Server.Stats().Locks; got.HandedOver != 1 {
			t.Errorf("%d were handed over", got.HandedOver)
		}
	})
}
