//go:build !race

package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// What libraries send to take a lock and to release it.
const (
	hashTake = `if ((redis.call('exists', KEYS[1]) == 0) or (redis.call('hexists', KEYS[1],
		ARGV[2]) == 1)) then redis.call('hincrby', KEYS[1], ARGV[2], 1); redis.call('pexpire',
		KEYS[1], ARGV[1]); return nil; end; return redis.call('pttl', KEYS[1]);`
	hashFree = `if (redis.call('hexists', KEYS[1], ARGV[3]) == 0) then return nil; end;
		local c = redis.call('hincrby', KEYS[1], ARGV[3], -1);
		if (c > 0) then redis.call('pexpire', KEYS[1], ARGV[2]); return 0; end;
		redis.call('del', KEYS[1]); redis.call('publish', KEYS[2], ARGV[1]); return 1;`
	setTake = `local key = KEYS[1]
		if redis.call("TYPE", key).ok == "string" then return false end
		local now = redis.call("TIME")
		now = now[1] * 1000 + math.floor(now[2] / 1000)
		redis.call("ZREMRANGEBYSCORE", key, "-inf", now)
		if redis.call("ZSCORE", key, ARGV[2]) then return true end
		if redis.call("ZCOUNT", key, "-inf", "+inf") > 0 then return false end
		redis.call("ZADD", key, now + ARGV[3], ARGV[2])
		redis.call("ZADD", key, now + ARGV[3], "__write__")
		redis.call("PEXPIREAT", key, redis.call("ZREVRANGE", key, 0, 0, "WITHSCORES")[2])
		return true`
	setFree = `local key = KEYS[1]
		if redis.call("TYPE", key).ok == "string" then return false end
		if not redis.call("ZSCORE", key, ARGV[1]) then return false end
		redis.call("ZREM", key, ARGV[1])
		redis.call("ZREM", key, "__write__")
		return true`
	zeroTake = `if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then
			redis.call('PEXPIRE', KEYS[1], ARGV[2])
			return 0
		end
		return 1`
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

func isNil(_ any, err error) bool { return err == redis.Nil }

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
	client := proxytest.GoRedis(c.t, addr)
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

// test runs two clients through the proxy and two directly next to two waiters, until everybody has
// been served.
func (lib libraryLock) test(t *testing.T, server *virtualtest.Store, p *proxytest.Proxy) {
	got := make([]atomic.Int64, 6)
	began := time.Now()
	all := &contenders{t: t, key: "job:" + lib.name, hold: ms, over: func() bool {
		for i := range got {
			if got[i].Load() == 0 {
				return time.Since(began) > time.Minute
			}
		}
		return true
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
		if counts[i] == 0 {
			t.Errorf("%s: client %d was not served in a minute", lib.name, i)
		}
	}
	t.Logf("%s: through the proxy %d, directly %d, LOCK WAIT %d", lib.name, counts[:2], counts[2:4],
		counts[4:])
}

// The locks of other libraries, half of whose clients pass through the proxy and half do not, next
// to LOCK … WAIT on the same key: never two holders, and everybody is served.
func TestLibrariesNextToLOCK(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		for name, park := range map[string]time.Duration{"as it is": 0, "with --park": 200 * ms} {
			server := virtualtest.StartStore(t)
			p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
				cfg.Park, cfg.ParkKeys = park, "*"
			})
			for _, lib := range libraryLocks {
				virtualtest.Part(t, lib.name+", "+name, func(t *testing.T) {
					lib.test(t, server, p)
				})
			}
		}
	})
}
