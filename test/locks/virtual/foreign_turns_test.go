//go:build !race

package virtual_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// LOCK's waiters and clients of other lock libraries at one lock: never two holders, and both kinds
// get their share.

// contenders take one lock again and again until over reports true.
type contenders struct {
	t       *testing.T
	key     string
	hold    time.Duration
	over    func() bool
	running sync.WaitGroup
	holders atomic.Int32
}

// distance is how long at least a client needs to learn that its lock is released: a proxy hears of
// that before the client can ask again.
const distance = 100 * time.Microsecond

// holds is what a client does while it has the lock.
func (c *contenders) holds(who string) {
	if n := c.holders.Add(1); n > 1 {
		c.t.Errorf("%s is one of %d holders", who, n)
	}
	time.Sleep(c.hold)
	c.holders.Add(-1)
}

// foreign is a client that polls with SET NX PX and releases by compare-and-delete.
func (c *contenders) foreign(addr string, poll time.Duration, got *atomic.Int64) {
	client := proxytest.GoRedis(c.t, addr)
	release := redis.NewScript(compareAndDelete)
	value := fmt.Sprintf("%p", client)
	c.running.Go(func() {
		for !c.over() {
			ok, err := client.SetNX(proxytest.Ctx, c.key, value, 10*time.Second).Result()
			switch {
			case err != nil:
				c.t.Error(err)
				return
			case !ok:
				time.Sleep(poll)
				continue
			}
			c.holds(addr)
			got.Add(1)
			if n, err := release.Run(proxytest.Ctx, client, []string{c.key}, value).Int(); n != 1 {
				c.t.Errorf("not released: %d, %v", n, err)
				return
			}
			time.Sleep(distance)
		}
	})
}

// waiter is a client that takes the lock by LOCK … WAIT, or together with others by LOCKALL … WAIT.
func (c *contenders) waiter(addr string, got *atomic.Int64, others ...any) {
	client := proxytest.GoRedis(c.t, addr)
	keys := append([]any{c.key}, others...)
	n, take := len(keys), []any{"LOCK", c.key, "10", "WAIT", "20"}
	if n > 1 {
		take = append(append([]any{"LOCKALL", "10", n}, keys...), "WAIT", "20")
	}
	c.running.Go(func() {
		for !c.over() {
			token, err := client.Do(proxytest.Ctx, take...).Int64()
			if err != nil {
				c.t.Error(err)
				return
			}
			c.holds("LOCK")
			got.Add(1)
			release := append([]any{"UNLOCKALL", token, n}, keys...)
			if freed, err := client.Do(proxytest.Ctx, release...).Int(); freed != n {
				c.t.Errorf("not unlocked: %d, %v", freed, err)
				return
			}
		}
	})
}

// Each kind gets at least a third of an equal share if the foreign clients pass by the proxy. If some
// do not, waiters can only poll, since this store has no CLIENT TRACKING: none starves, whether they
// want one lock or two.
func TestForeignClientsAndWaitersShare(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		for _, c := range []struct {
			name            string
			proxied, direct int
			two             bool
		}{{"through the proxy", 6, 0, false}, {"half and half", 3, 3, false},
			{"two, half and half", 3, 3, true}} {
			virtualtest.Part(t, c.name, func(t *testing.T) {
				const waiters, lasting = 3, 2 * time.Second
				end := time.Now().Add(lasting)
				var foreign, ours atomic.Int64
				starves := func() bool { return ours.Load() < waiters || foreign.Load() < waiters }
				all := &contenders{t: t, key: c.name, hold: 5 * time.Millisecond,
					over: func() bool { // how often those that poll are served is chance
						late := time.Since(end)
						return late > 0 && (!starves() || late > testwait.Patience)
					}}
				for i := range c.proxied + c.direct {
					addr := p.Addr
					if i >= c.proxied {
						addr = server.Addr()
					}
					all.foreign(addr, 10*time.Millisecond, &foreign)
				}
				for i := range waiters {
					if c.two {
						all.waiter(p.Addr, &ours, fmt.Sprintf("%s %d", c.name, i))
					} else {
						all.waiter(p.Addr, &ours)
					}
				}
				all.running.Wait()
				total := foreign.Load() + ours.Load()
				equal := total * waiters / int64(waiters+c.proxied+c.direct)
				t.Logf("foreign %d, waiters %d of %d for an equal share", foreign.Load(), ours.Load(),
					equal)
				if c.direct == 0 && (ours.Load()*3 < equal || foreign.Load()*3 < total-equal) {
					t.Error("one kind has less than a third of an equal share")
				}
				if starves() {
					t.Error("one kind starves")
				}
			})
		}
	})
}

// A release that leaves the key free, because foreign clients compete at another proxy, does not
// count its own proxy as waiting if nobody waits there: readers would be refused.
func TestFreeForForeignClientsElsewhere(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		far := proxytest.Start(t, server.URL(), nil)
		holder, foreign := proxytest.Dial(t, p.Addr), proxytest.Dial(t, far.Addr)
		first, second := proxytest.Dial(t, far.Addr), proxytest.Dial(t, far.Addr)
		token := holder.Lock("doc 30")
		first.Send("LOCK doc 30 SHARED WAIT 20")
		proxytest.AwaitWaiters(t, far, "doc", 1)
		foreign.Expect("SET doc x NX PX 30000", "$-1\r\n")
		time.Sleep(300 * time.Millisecond) // until it is recorded that they compete there
		holder.Expect(proxytest.Unlock("doc", token), ":1\r\n")
		proxytest.Token(t, first.Reply())
		second.Lock("doc 30 SHARED")
	})
}
