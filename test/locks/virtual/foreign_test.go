//go:build !race

package virtual_test

// Locks of other libraries and recipes have their own TTL:
// LOCK leaves them to their holders until that ends.

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// foreignProxies are proxies of every way to take a lock: the
// fast path, and the slow path in each unit.
func foreignProxies(t *testing.T, server *virtualtest.Store) map[string]*proxytest.Proxy {
	return map[string]*proxytest.Proxy{
		"ms": proxytest.Start(t, server.URL(), nil),
		"s":  proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.Locks.Seconds = true }),
		"guard": proxytest.Start(t, server.URL(), func(c *proxy.Config) {
			c.Locks.TakeoverGuard = 50 * time.Millisecond
		}),
	}
}

// takenAt are the forms of the time that recipes write when they have taken a lock.
func takenAt() map[string]string {
	now := time.Now()
	return map[string]string{
		"seconds":         strconv.FormatInt(now.Unix(), 10),
		"float seconds":   fmt.Sprintf("%.6f", float64(now.UnixMicro())/1e6),
		"ms":              strconv.FormatInt(now.UnixMilli(), 10),
		"float ms":        fmt.Sprintf("%.3f", float64(now.UnixMicro())/1e3),
		"microseconds":    strconv.FormatInt(now.UnixMicro(), 10),
		"seconds, before": strconv.FormatInt(now.Unix()-3600, 10),
	}
}

// elsewhere fails unless every lock command says that another
// client has the lock, and leaves it unchanged.
func elsewhere(t *testing.T, c *proxytest.Conn, direct *redis.Client, key string) {
	t.Helper()
	was, ttl := direct.Dump(proxytest.Ctx, key).Val(), direct.PTTL(proxytest.Ctx, key).Val()
	c.Expect("LOCK "+key+" 30", "$-1\r\n")
	c.Expect("LOCK "+key+" 30 OWNER me SESSION", "$-1\r\n")
	c.Expect("LOCK "+key+" 30 WAIT 0.05", "$-1\r\n")
	c.Expect("UNLOCK "+key, ":0\r\n")
	c.Expect("UNLOCK "+key+" 1795236380001111", ":0\r\n")
	c.Expect("UNLOCK "+key+" FORCE", fmt.Sprintf("-WRONGTYPE Key %q holds another library's "+
		"lock: its holder frees it, or DEL; UNLOCK frees only what LOCK or a timestamp holds\r\n", key))
	c.Expect("RELOCK "+key+" 1795236380001111 30", ":0\r\n")
	c.Expect("FENCE "+key+" 1795236380001111 SET {"+key+"}:done 1", "-FENCED …")
	if info := c.Do("LOCKINFO " + key); !strings.Contains(info,
		"\r\nheld\r\n$4\r\nkind\r\n$5\r\nother\r\n$5\r\ntoken\r\n$-1\r\n") {
		t.Errorf("%s: LOCKINFO says %q", key, info)
	}
	if got := direct.Dump(proxytest.Ctx, key).Val(); got != was {
		t.Errorf("%s has been changed", key)
	}
	if got := direct.PTTL(proxytest.Ctx, key).Val(); got > ttl || got < ttl-5*time.Second {
		t.Errorf("%s: its TTL was %v and is %v", key, ttl, got)
	}
}

func TestTimeTakenWithTTLIsForeign(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		direct := proxytest.GoRedis(t, server.Addr())
		for unit, p := range foreignProxies(t, server) {
			c := proxytest.Dial(t, p.Addr)
			for what, value := range takenAt() {
				for _, before := range []string{"never locked", "locked before"} {
					key := strings.ReplaceAll(fmt.Sprintf("%s:%s:%s", unit, what, before), " ", "_")
					if before == "locked before" { // its record exists
						c.Lock(key + " 30")
						c.Expect("UNLOCK "+key, ":1\r\n")
					}
					if !direct.SetNX(proxytest.Ctx, key, value, time.Minute).Val() {
						t.Fatal("SET NX was refused")
					}
					elsewhere(t, c, direct, key)
				}
			}
		}
	})
}

func TestOtherLibrariesLocks(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		direct := proxytest.GoRedis(t, server.Addr())
		put := map[string]func(key string){
			"random": func(key string) {
				direct.SetNX(proxytest.Ctx, key, "5f0c1d0e-99aa-4fd5-ae1b-0b0b8a9bd2a5", time.Minute)
			},
			"number": func(key string) { direct.SetNX(proxytest.Ctx, key, "42", time.Minute) },
			"empty":  func(key string) { direct.SetNX(proxytest.Ctx, key, "", time.Minute) },
			"hash": func(key string) {
				direct.HIncrBy(proxytest.Ctx, key, "uuid:1", 1)
				direct.PExpire(proxytest.Ctx, key, time.Minute)
			},
			"zset": func(key string) {
				direct.ZAdd(proxytest.Ctx, key, redis.Z{Score: 1, Member: "x"})
				direct.Expire(proxytest.Ctx, key, time.Minute)
			},
			"set": func(key string) {
				direct.SAdd(proxytest.Ctx, key, "x")
				direct.Expire(proxytest.Ctx, key, time.Minute)
			},
			"list": func(key string) {
				direct.RPush(proxytest.Ctx, key, "1")
				direct.Expire(proxytest.Ctx, key, time.Minute)
			},
			"stream": func(key string) {
				direct.XAdd(proxytest.Ctx, &redis.XAddArgs{Stream: key, Values: []string{"x", "y"}})
				direct.Expire(proxytest.Ctx, key, time.Minute)
			},
			"expired": func(key string) { direct.Set(proxytest.Ctx, key, "1000000000", time.Minute) },
		}
		for unit, p := range foreignProxies(t, server) {
			c := proxytest.Dial(t, p.Addr)
			for what, put := range put {
				key := unit + ":" + what
				put(key)
				elsewhere(t, c, direct, key)
				direct.Persist(proxytest.Ctx, key)
				if what == "expired" { // a lock of the older recipes, which set no TTL
					c.Lock(key + " 30")
					continue
				}
				for _, command := range []string{"LOCK %s 30", "LOCK %s 30 WAIT 1", "UNLOCK %s",
					"UNLOCK %s FORCE", "RELOCK %s 1 30", "LOCKINFO %s", "FENCE %s 1 PING"} {
					c.Expect(fmt.Sprintf(command, key), "-WRONGTYPE …")
				}
			}
		}
	})
}

// A waiter gets another library's lock when its TTL ends or it is deleted, and not before.
func TestWaitForOtherLibrariesLock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		direct := proxytest.GoRedis(t, server.Addr())
		for unit, p := range foreignProxies(t, server) {
			c := proxytest.Dial(t, p.Addr)
			for what, value := range map[string]string{"taken": strconv.FormatInt(time.Now().Unix(),
				10), "random": "5f0c1d0e"} {
				key := unit + ":" + what
				const ttl, poll = 700 * time.Millisecond, 245 * time.Millisecond
				asked := time.Now()
				direct.SetNX(proxytest.Ctx, key, value, ttl)
				began := time.Now()
				c.Lock(key + " 30 WAIT 5")
				if time.Since(asked) < ttl-20*time.Millisecond || time.Since(began) > ttl+150*time.Millisecond {
					t.Errorf("%s: with a TTL of %v the lock was given after %v to %v", key, ttl,
						time.Since(began), time.Since(asked))
				}
				c.Expect("UNLOCK "+key, ":1\r\n")

				direct.SetNX(proxytest.Ctx, key, value, time.Minute)
				c.Send("LOCK " + key + " 30 WAIT 5")
				proxytest.AwaitWaiters(t, p, key, 1)
				time.Sleep(100 * time.Millisecond)
				direct.Del(proxytest.Ctx, key)
				began = time.Now()
				got := c.Reply()
				took := time.Since(began)
				if got[0] != ':' || took > poll {
					t.Errorf("%s: %q %v after DEL", key, got, took)
				}
			}
		}
	})
}

// A recipe takes the lock in the same second in which LOCK's
// expired, and writes that second: it has the lock.
func TestTimeTakenEqualsExpiry(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		direct := proxytest.GoRedis(t, server.Addr())
		for unit, p := range foreignProxies(t, server) {
			c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			key := "job:" + unit
			token := c.Lock(key + " 0.5")
			written := direct.Get(proxytest.Ctx, key).Val()
			testwait.Until(t, "the lock has expired", func() bool {
				return direct.Exists(proxytest.Ctx, key).Val() == 0
			})
			if !direct.SetNX(proxytest.Ctx, key, written, time.Minute).Val() {
				t.Fatal("SET NX was refused")
			}
			elsewhere(t, other, direct, key)
			c.Expect(proxytest.Unlock(key, token), ":0\r\n")
			c.Expect(fmt.Sprintf("RELOCK %s %d 30", key, token), ":0\r\n")
		}
	})
}

// Another client extends the TTL of LOCK's key: it knows what
// it does, so no LOCK takes the key until then.
func TestExpireOnLOCKsKey(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		direct := proxytest.GoRedis(t, server.Addr())
		for unit, p := range foreignProxies(t, server) {
			for _, proof := range []string{"token", "connection"} {
				c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
				key := "job:" + unit + ":" + proof
				token := c.Lock(key + " 1")
				value, _ := strconv.ParseInt(direct.Get(proxytest.Ctx, key).Val(), 10, 64)
				if unit == "s" {
					value *= 1000
				}
				direct.Expire(proxytest.Ctx, key, time.Minute)
				other.Expect("LOCK "+key+" 30", "$-1\r\n")
				time.Sleep(time.Until(time.UnixMilli(value + 60))) // after the guard, too
				command := "UNLOCK " + key
				if proof == "token" {
					command = proxytest.Unlock(key, token)
				}
				c.Expect(command, ":0\r\n")
				elsewhere(t, other, direct, key)
			}
		}
	})
}

// The recipe that sets the timestamp and a TTL in a script (L4), and crashes: the lock is free when
// the TTL has ended, at most a second after its timestamp.
func TestTimestampWithTTLEnds(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		const acquire = `if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then
			redis.call('EXPIRE', KEYS[1], ARGV[2])
			return 1
		end
		return 0`
		c := proxytest.Dial(t, p.Addr)
		until := time.Now().Unix() + 2
		if direct.Eval(proxytest.Ctx, acquire, []string{"job"}, until, 2).Val() != int64(1) {
			t.Fatal("not acquired")
		}
		c.Expect("LOCK job 30", "$-1\r\n")
		c.Lock("job 30 WAIT 5")
		if late := time.Since(time.Unix(until, 0)); late < 0 ||
			late > 1200*time.Millisecond {
			t.Errorf("given %v after the timestamp", late)
		}
	})
}
