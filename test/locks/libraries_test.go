package locks_test

// The locks of other libraries, half of whose clients pass through the proxy and half do not, next
// to LOCK … WAIT on the same key: never two holders, and everybody is served.

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// libraryLock is how a library takes and releases a lock, in its own words: the commands and
// their order are the library's.
type libraryLock struct {
	name       string
	take, free *redis.Script // take is nil for SET NX
	expiry     string        // of SET NX: PX or EX
	args       func(key, value string) (keys []string, take, free []any)
	took       func(reply any, err error) bool
	givesUp    bool             // it releases what it was refused
	retry      [2]time.Duration // least and most
}

const ms = time.Millisecond

// leaseMS is how long their locks last.
const leaseMS = 10000

func isOK(reply any, err error) bool { return err == nil && (reply == "OK" || reply == int64(1)) }
func isNil(_ any, err error) bool    { return err == redis.Nil }
func byValue(key, value string) ([]string, []any, []any) {
	return []string{key}, []any{value, leaseMS, "yes"}, []any{value}
}

var libraryLocks = []libraryLock{
	{name: "redis-py", expiry: "PX", free: redis.NewScript(`
		local token = redis.call('get', KEYS[1])
		if not token or token ~= ARGV[1] then return 0 end
		redis.call('del', KEYS[1])
		return 1`), args: byValue, took: isOK, retry: [2]time.Duration{100 * ms, 101 * ms}},
	{name: "redlock-rb", take: redis.NewScript(`
		if (redis.call("exists", KEYS[1]) == 0 and ARGV[3] == "yes") or
			redis.call("get", KEYS[1]) == ARGV[1] then
			return redis.call("set", KEYS[1], ARGV[1], "PX", ARGV[2])
		end`), free: redis.NewScript(compareAndDelete), args: byValue, took: isOK,
		givesUp: true, retry: [2]time.Duration{200 * ms, 250 * ms}},
	{name: "node-redlock", take: redis.NewScript(`
		for i, key in ipairs(KEYS) do if redis.call("exists", key) == 1 then return 0 end end
		for i, key in ipairs(KEYS) do redis.call("set", key, ARGV[1], "PX", ARGV[2]) end
		return #KEYS`), free: redis.NewScript(`
		local n = 0
		for i, key in ipairs(KEYS) do
			if redis.call("get", key) == ARGV[1] then n = n + redis.call("del", key) end
		end
		return n`), args: byValue, took: isOK, givesUp: true,
		retry: [2]time.Duration{100 * ms, 300 * ms}},
	{name: "redsync", expiry: "PX", free: redis.NewScript(`
		local val = redis.call("GET", KEYS[1])
		if val == ARGV[1] then return redis.call("DEL", KEYS[1])
		elseif val == false then return -1 else return 0 end`), args: byValue, took: isOK,
		retry: [2]time.Duration{50 * ms, 250 * ms}},
	{name: "redislock", take: redis.NewScript(`
		local all = {}
		for i, key in ipairs(KEYS) do all[2 * i - 1], all[2 * i] = key, ARGV[1] end
		if redis.call("msetnx", unpack(all)) ~= 1 then return false end
		for _, key in ipairs(KEYS) do redis.call("pexpire", key, ARGV[2]) end
		return redis.status_reply("OK")`), free: redis.NewScript(compareAndDelete), args: byValue,
		took: isOK, retry: [2]time.Duration{20 * ms, 21 * ms}},
	{name: "Laravel", expiry: "EX", free: redis.NewScript(compareAndDelete), args: byValue,
		took: isOK, retry: [2]time.Duration{250 * ms, 251 * ms}},
	{name: "Symfony", take: redis.NewScript(setTake), free: redis.NewScript(setFree),
		args: func(key, value string) ([]string, []any, []any) {
			now := fmt.Sprintf("%.3f", float64(time.Now().UnixMilli())/1000)
			return []string{key}, []any{now, value, leaseMS}, []any{value}
		}, took: isOK, retry: [2]time.Duration{90 * ms, 110 * ms}},
	{name: "Redisson", take: redis.NewScript(hashTake), free: redis.NewScript(strings.ReplaceAll(
		hashFree, "KEYS[2]", "KEYS[1] .. ':channel'")),
		args: func(key, value string) ([]string, []any, []any) {
			return []string{key}, []any{leaseMS, value}, []any{"0", leaseMS, value}
		}, took: isNil, retry: [2]time.Duration{30 * ms, 60 * ms}},
	{name: "0 is yes", take: redis.NewScript(zeroTake), free: redis.NewScript(compareAndDelete),
		args: byValue, took: func(reply any, _ error) bool { return reply == int64(0) },
		retry: [2]time.Duration{50 * ms, 60 * ms}},
}

// library is a client of a library.
func (c *contenders) library(lib libraryLock, addr string, got *atomic.Int64) {
	client := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, PoolSize: 1,
		DisableIdentity: true})
	c.t.Cleanup(func() { client.Close() })
	value := fmt.Sprintf("%p", client)
	c.running.Go(func() {
		for !c.over() {
			keys, take, free := lib.args(c.key, value)
			var took bool
			if lib.take != nil {
				took = lib.took(lib.take.Run(proxytest.Ctx, client, keys, take...).Result())
			} else {
				lease := leaseMS
				if lib.expiry == "EX" {
					lease /= 1000
				}
				took = lib.took(client.Do(proxytest.Ctx, "SET", c.key, value, "NX", lib.expiry,
					lease).Result())
			}
			if !took {
				if lib.givesUp {
					lib.free.Run(proxytest.Ctx, client, keys, free...)
				}
				time.Sleep(lib.retry[0] + rand.N(lib.retry[1]-lib.retry[0]))
				continue
			}
			c.holds(lib.name)
			got.Add(1)
			if n, err := lib.free.Run(proxytest.Ctx, client, keys, free...).Int(); n != 1 {
				c.t.Errorf("%s: not released: %d, %v", lib.name, n, err)
				return
			}
			time.Sleep(time.Duration(rand.IntN(10)) * ms)
		}
	})
}

// test runs two clients through the proxy and two directly next to two waiters. Slow clients on a
// busy machine have few chances: it takes up to four times as long, until everybody is served.
func (lib libraryLock) test(t *testing.T, server *testredis.Server, p *proxytest.Proxy) {
	got := make([]atomic.Int64, 6)
	unserved := func(i int) bool {
		direct := i == 2 || i == 3 // they poll, and have even fewer
		return got[i].Load() == 0 && !(direct && librariesLast < time.Minute)
	}
	end := time.Now().Add(librariesLast)
	all := &contenders{t: t, key: "job:" + lib.name, hold: ms, over: func() bool {
		late := time.Since(end)
		return late > 3*librariesLast || late > 0 &&
			!slices.ContainsFunc([]int{0, 1, 2, 3, 4, 5}, unserved)
	}}
	for i := range got {
		switch {
		case i < 2:
			all.library(lib, p.Addr, &got[i])
		case i < 4:
			all.library(lib, server.Addr(), &got[i])
		default:
			all.waiter(p.Addr, &got[i])
		}
	}
	all.running.Wait()
	var counts []int64
	for i := range got {
		counts = append(counts, got[i].Load())
		if unserved(i) {
			t.Errorf("client %d was never served", i)
		}
	}
	t.Logf("through the proxy %d, directly %d, LOCK WAIT %d", counts[:2], counts[2:4], counts[4:])
}

func TestLibrariesNextToLOCK(t *testing.T) {
	t.Parallel()
	for name, park := range map[string]time.Duration{"as it is": 0, "with --park": 200 * ms} {
		t.Run(name, func(t *testing.T) {
			server := testredis.Start(t)
			p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
				cfg.Park, cfg.ParkKeys = park, "*"
			})
			t.Run("libraries", func(t *testing.T) {
				for _, lib := range libraryLocks {
					t.Run(lib.name, func(t *testing.T) {
						t.Parallel()
						lib.test(t, server, p)
					})
				}
			})
		})
	}
}
