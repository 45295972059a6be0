package real_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
)

// contenders take one lock again and again. How often each kind gets it is tested in virtual time.
type contenders struct {
	t       *testing.T
	over    atomic.Bool
	holders atomic.Int32
	running sync.WaitGroup
	counts  []*atomic.Int64
}

// client runs turn until all is over, which takes the lock, calls holds, and releases the lock.
func (c *contenders) client(turn func(holds func()) error) {
	got := &atomic.Int64{}
	c.counts = append(c.counts, got)
	c.running.Go(func() {
		for !c.over.Load() {
			if err := turn(func() {
				if n := c.holders.Add(1); n > 1 {
					c.t.Errorf("%d have the lock", n)
				}
				got.Add(1)
				c.holders.Add(-1)
			}); err != nil {
				c.t.Error(err)
				return
			}
		}
	})
}

func (c *contenders) waiter(addr string, keys ...any) {
	client, n := proxytest.GoRedis(c.t, addr), len(keys)
	take := append(append([]any{"LOCKALL", "300", n}, keys...), "WAIT", "0")
	if n == 1 {
		take = []any{"LOCK", keys[0], "300", "WAIT", "0"}
	}
	c.client(func(holds func()) error {
		token, err := client.Do(proxytest.Ctx, take...).Int64()
		if err != nil {
			return err
		}
		holds()
		freed, err := client.Do(proxytest.Ctx,
			append([]any{"UNLOCKALL", token, n}, keys...)...).Int()
		if freed != n {
			return fmt.Errorf("%d of %d released, %v", freed, n, err)
		}
		return nil
	})
}

// foreign is a client that polls with SET NX PX, and releases by compare-and-delete.
func (c *contenders) foreign(addr, key string) {
	client, release := proxytest.GoRedis(c.t, addr), redis.NewScript(compareAndDelete)
	value := fmt.Sprintf("%p", client)
	c.client(func(holds func()) error {
		ok, err := client.SetNX(proxytest.Ctx, key, value, 5*time.Minute).Result()
		if err != nil || !ok { // it polls after a while, as its kind does
			client.Do(proxytest.Ctx, "BLPOP", "nothing", "0.05")
			return err
		}
		holds()
		if n, err := release.Run(proxytest.Ctx, client, []string{key}, value).Int(); n != 1 {
			return fmt.Errorf("not released: %d, %v", n, err)
		}
		return nil
	})
}

// Clients that wait at two proxies, for one lock or for two, and foreign clients, through a proxy
// and past it, take one lock in turns: never two have it, and each gets it.
func TestOneHolder(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	one, two := proxytest.Start(t, server.URL(), nil), proxytest.Start(t, server.URL(), nil)
	all := &contenders{t: t}
	for i := range 4 {
		all.waiter(one.Addr, "job")
		all.waiter(two.Addr, "job")
		all.waiter([]string{one.Addr, two.Addr}[i%2], "job", fmt.Sprint("job:", i))
		all.foreign([]string{one.Addr, server.Addr()}[i%2], "job")
	}
	served := testwait.Holds(func() bool {
		for _, got := range all.counts {
			if got.Load() < 3 {
				return false
			}
		}
		return true
	})
	all.over.Store(true)
	all.running.Wait()
	for i, got := range all.counts {
		if !served {
			t.Errorf("client %d had the lock %d times", i, got.Load())
		}
	}
}
