package locks_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// polling is what clients got that poll a lock as redis-py's Lock does: SET NX PX each 100 ms.
type polling struct {
	perSecond   float64
	longestWait time.Duration
	commands    float64 // of Redis, for each acquisition
}

func (p polling) String() string {
	return fmt.Sprintf("%.0f acquisitions/s, longest wait %v, %.1f commands per acquisition",
		p.perSecond, p.longestWait.Round(time.Millisecond), p.commands)
}

// poll has clients take the lock, hold it for 5 ms, release it and come back after 50 ms.
func poll(t *testing.T, addr, key string, direct *redis.Client, lasts time.Duration) polling {
	var mu sync.Mutex
	var running sync.WaitGroup
	var got int
	var longest time.Duration
	_, before := scriptCalls(t, direct)
	end := time.Now().Add(lasts)
	release := redis.NewScript(compareAndDelete)
	for i := range pollers {
		value := fmt.Sprint("token-", i)
		c := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, PoolSize: 1,
			DisableIdentity: true})
		t.Cleanup(func() { c.Close() })
		running.Go(func() {
			for time.Now().Before(end) {
				began := time.Now()
				for !c.SetNX(proxytest.Ctx, key, value, 10*time.Second).Val() {
					if time.Now().After(end) {
						break
					}
					time.Sleep(100 * time.Millisecond)
				}
				waited := time.Since(began)
				mu.Lock()
				got++
				longest = max(longest, waited)
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
				release.Run(proxytest.Ctx, c, []string{key}, value)
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	running.Wait()
	_, after := scriptCalls(t, direct)
	return polling{float64(got) / lasts.Seconds(), longest, float64(after-before) / float64(got)}
}

// With --park, clients that poll wait less long, and cost Redis less.
func TestParkSparesRedis(t *testing.T) {
	const lasts = 2 * time.Second
	server := testredis.Start(t)
	direct := proxytest.GoRedis(t, server.Addr())
	plain := proxytest.Start(t, server.URL(), nil)
	parking := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Park, cfg.ParkKeys = 200*time.Millisecond, "*"
	})
	straight := poll(t, server.Addr(), "direct", direct, lasts)
	through := poll(t, plain.Addr, "through", direct, lasts)
	parked := poll(t, parking.Addr, "parked", direct, lasts)
	t.Logf("%d pollers directly: %v", pollers, straight)
	t.Logf("through the proxy: %v", through)
	t.Logf("with --park 200ms: %v", parked)
	if parked.commands > through.commands || parked.longestWait > through.longestWait {
		t.Error("--park makes it worse")
	}
}
