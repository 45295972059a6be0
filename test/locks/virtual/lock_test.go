//go:build !race

package virtual_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd/keyname"
	"lockproxy/proxy"
)

func TestLockContract(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)

		token := a.Lock("job 30")
		b.Expect("LOCK job 30", "$-1\r\n")
		a.Expect("LOCK job 30", "$-1\r\n") // not even its own holder
		b.Expect("UNLOCK job", ":0\r\n")   // another connection's lock
		b.Expect("UNLOCK job 1", ":0\r\n")
		b.Expect(proxytest.Unlock("job", token), ":1\r\n") // the token is the right to release it
		b.Expect(proxytest.Unlock("job", token), ":0\r\n")
		a.Lock("job 30")
		a.Expect("unlock job", ":1\r\n")
		a.Expect("UNLOCK job", ":0\r\n")
		a.Lock("job 30")
		b.Expect("UNLOCK job force", ":1\r\n")
		b.Expect("UNLOCK job FORCE", ":0\r\n")

		b.Expect("HELLO 3", "%7…")
		a.Lock("job 30")
		b.Expect("LOCK job 30", "_\r\n")
		b.Expect("UNLOCK job FORCE", ":1\r\n")
	})
}

func TestLockIsStoredAsATimestamp(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		seconds := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.Locks.Seconds = true })
		direct := proxytest.GoRedis(t, server.Addr())
		for _, unit := range []struct {
			addr string
			ms   int64
		}{{p.Addr, 1}, {seconds.Addr, 1000}} {
			key := fmt.Sprintf("job%d", unit.ms)
			before := direct.Time(proxytest.Ctx).Val().UnixMilli()
			proxytest.Dial(t, unit.addr).Lock(key + " 2.5")
			after := direct.Time(proxytest.Ctx).Val().UnixMilli()
			value, err := direct.Get(proxytest.Ctx, key).Int64()
			if err != nil || value*unit.ms < before+2500 || value*unit.ms >= after+2500+unit.ms {
				t.Errorf("%s holds %d, %v; taken between %d and %d for 2.5 s", key, value, err, before,
					after)
			}
			ttl := direct.PTTL(proxytest.Ctx, key).Val().Milliseconds()
			if left := value*unit.ms - direct.Time(proxytest.Ctx).Val().UnixMilli(); ttl < left-1 ||
				ttl > left+1000 {
				t.Errorf("%s has a TTL of %d ms and %d ms to run", key, ttl, left)
			}
			record := keyname.Record([]byte(key))
			if ttl := direct.PTTL(proxytest.Ctx, record).Val(); ttl < 10*time.Minute ||
				ttl > 10*time.Minute+4*time.Second {
				t.Errorf("the record of %s has a TTL of %v", key, ttl)
			}
		}
	})
}

func TestLockKeysAreBinarySafe(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		for _, key := range []string{"", "a b", "a\r\nb", "\x00\xff", "{tag}x", "}{", "%d",
			strings.Repeat("k", 100000)} {
			quoted := fmt.Sprintf("$%d\r\n%s\r\n", len(key), key)
			c.WriteRaw("*3\r\n$4\r\nLOCK\r\n" + quoted + "$2\r\n30\r\n")
			if got := c.Reply(); got[0] != ':' {
				t.Errorf("LOCK %.20q: %q", key, got)
			}
			c.WriteRaw("*2\r\n$6\r\nUNLOCK\r\n" + quoted)
			if got := c.Reply(); got != ":1\r\n" {
				t.Errorf("UNLOCK %.20q: %q", key, got)
			}
		}
	})
}

func TestLockExpiresAndIsTakenOver(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		first := a.Lock("job 0.5")
		b.Expect("LOCK job 30", "$-1\r\n")
		time.Sleep(510 * time.Millisecond)
		second := b.Lock("job 30")
		if second <= first {
			t.Errorf("tokens %d, then %d", first, second)
		}
		a.Expect(proxytest.Unlock("job", first), ":0\r\n")
		a.Expect("UNLOCK job", ":0\r\n")
		b.Expect(proxytest.Unlock("job", second), ":1\r\n")

		// A foreign client's timestamp, in seconds or ms, live or expired, with or without a TTL.
		direct := proxytest.GoRedis(t, server.Addr())
		now := direct.Time(proxytest.Ctx).Val()
		for i, foreign := range []struct {
			value string
			live  bool
		}{
			{strconv.FormatInt(now.Unix()+20, 10), true},
			{strconv.FormatInt(now.UnixMilli()+20000, 10), true},
			{fmt.Sprintf("%d.25", now.Unix()+20), true},
			{strconv.FormatInt(now.Unix()-1, 10), false},
			{strconv.FormatInt(now.UnixMilli()-1, 10), false},
			{fmt.Sprintf("%d.75", now.Unix()-2), false},
			{fmt.Sprintf("%.13e", float64(now.UnixMilli()-5000)), false},
		} {
			key := fmt.Sprintf("foreign%d", i)
			direct.Set(proxytest.Ctx, key, foreign.value, 0)
			got := a.Do("LOCK " + key + " 30")
			if held := got == "$-1\r\n"; held != foreign.live {
				t.Errorf("LOCK of a key with %s: %q", foreign.value, got)
			}
			if foreign.live {
				a.Expect("UNLOCK "+key, ":0\r\n")
				a.Expect("GET "+key, fmt.Sprintf("$%d\r\n%s\r\n", len(foreign.value), foreign.value))
				a.Expect("UNLOCK "+key+" FORCE", ":1\r\n")
				a.Expect("EXISTS "+key, ":0\r\n")
			} else {
				a.Expect("UNLOCK "+key, ":1\r\n")
			}
		}
	})
}

func TestTokensRise(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		other := proxytest.Start(t, server.URL(), nil)
		direct := proxytest.GoRedis(t, server.Addr())
		last := int64(0)
		for i := range 60 {
			c := proxytest.Dial(t, []string{p.Addr, other.Addr}[i%2])
			timeout := "5"
			if i%4 == 3 { // left to expire
				timeout = "0.02"
			}
			token := c.Lock("job " + timeout)
			if token <= last {
				t.Fatalf("token %d after %d", token, last)
			}
			last = token
			switch i % 4 {
			case 0:
				c.Expect("UNLOCK job", ":1\r\n")
			case 1:
				c.Expect("UNLOCK job FORCE", ":1\r\n")
			case 2:
				direct.Del(proxytest.Ctx, "job")
			case 3:
				time.Sleep(25 * time.Millisecond)
			}
		}
		// A clock that stepped back looks like a last token from the future.
		future := last + 3600*1000*1000
		direct.Set(proxytest.Ctx, keyname.Record([]byte("job")),
			fmt.Sprintf("v1 %d 0 0 0 0 0 released - 0 - -\n", future), 0)
		if token := proxytest.Dial(t, p.Addr).Lock("job 1"); token != future+1 {
			t.Errorf("token %d after %d", token, future)
		}
	})
}

func TestDeletedOrOverwrittenUnderItsHolder(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		a.Lock("job 30")
		direct.Del(proxytest.Ctx, "job")
		theirs := b.Lock("job 30")
		a.Expect("UNLOCK job", ":0\r\n")
		b.Expect(proxytest.Unlock("job", theirs), ":1\r\n")

		token := a.Lock("job 30")
		foreign := strconv.FormatInt(time.Now().UnixMilli()+60000, 10)
		direct.Set(proxytest.Ctx, "job", foreign, 0)
		a.Expect(proxytest.Unlock("job", token), ":0\r\n")
		a.Expect("GET job", "$13\r\n"+foreign+"\r\n")
		direct.Del(proxytest.Ctx, "job")
		a.Expect(proxytest.Unlock("job", token), ":0\r\n")
	})
}

// README.md documents these commands, which move a lock's key, or its TTL.
func TestLockKeyIsMoved(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)

		token := a.Lock("short 30")
		direct.PExpire(proxytest.Ctx, "short", 50*time.Millisecond)
		b.Lock("short 30 WAIT 1")
		a.Expect(proxytest.Unlock("short", token), ":0\r\n")

		token = a.Lock("lasting 1")
		direct.Persist(proxytest.Ctx, "lasting")
		a.Expect(proxytest.Unlock("lasting", token), ":0\r\n")
		a.Expect(fmt.Sprintf("RELOCK lasting %d 30", token), ":0\r\n")
		b.Expect("LOCK lasting 30", "$-1\r\n")
		b.Lock("lasting 30 WAIT 3")

		token = a.Lock("old 30")
		direct.Copy(proxytest.Ctx, "old", "copy", 0, false)
		direct.Rename(proxytest.Ctx, "old", "new")
		a.Expect(proxytest.Unlock("old", token), ":0\r\n")
		for _, name := range []string{"copy", "new"} {
			a.Expect(proxytest.Unlock(name, token), ":0\r\n")
			b.Expect("LOCK "+name+" 30", "$-1\r\n")
			if info := b.Do("LOCKINFO " + name); !strings.Contains(info, "\r\ntimestamp\r\n") {
				t.Errorf("%s: LOCKINFO says %q", name, info)
			}
		}
		b.Lock("old 30")

		token = a.Lock("swapped 30")
		direct.Do(proxytest.Ctx, "SWAPDB", 0, 1)
		a.Expect(proxytest.Unlock("swapped", token), ":0\r\n")
		b.Lock("swapped 30")
		direct.Do(proxytest.Ctx, "SWAPDB", 0, 1)
		b.Expect("LOCK swapped 30", "$-1\r\n")
		a.Expect(proxytest.Unlock("swapped", token), ":1\r\n")
	})
}

// The next holder sees every write that the last holder sent
// before UNLOCK, although all went out in one pipeline.
func TestWritesBeforeUnlockAreApplied(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		writer, reader := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		for i := range 50 {
			token := writer.Lock("job 30")
			var pipeline []string
			for j := range 20 {
				pipeline = append(pipeline, fmt.Sprintf("SET x%d %d", j, i))
			}
			writer.Send(append(pipeline, proxytest.Unlock("job", token))...)
			var got string
			for got = reader.Do("LOCK job 30"); got == "$-1\r\n"; got = reader.Do("LOCK job 30") {
			}
			reader.Expect("GET x19", fmt.Sprintf("$%d\r\n%d\r\n", len(strconv.Itoa(i)), i))
			reader.Expect("UNLOCK job", ":1\r\n")
			for range 20 {
				writer.Reply()
			}
			if got := writer.Reply(); got != ":1\r\n" {
				t.Fatalf("UNLOCK: %q", got)
			}
		}
	})
}

// 100 clients, two proxies, and one lock around an otherwise unprotected counter.
func TestManyClientsOneLock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		other := proxytest.Start(t, server.URL(), nil)
		direct := proxytest.GoRedis(t, server.Addr())
		const clients, rounds = 100, 5
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() {
				c := proxytest.GoRedis(t, []string{p.Addr, other.Addr}[i%2])
				for range rounds {
					var token int64
					for token == 0 {
						got, err := c.Do(proxytest.Ctx, "LOCK", "job", "20").Result()
						switch {
						case got != nil:
							token = got.(int64)
						case err.Error() == "redis: nil":
							time.Sleep(time.Duration(1+rand.IntN(20)) * time.Millisecond)
						default:
							t.Error(err)
							return
						}
					}
					n, _ := direct.Get(proxytest.Ctx, "counter").Int()
					direct.Set(proxytest.Ctx, "counter", n+1, 0)
					got, err := c.Do(proxytest.Ctx, "UNLOCK", "job", token).Result()
					if got != int64(1) {
						t.Errorf("UNLOCK: %v, %v", got, err)
					}
				}
			})
		}
		wg.Wait()
		if n, _ := direct.Get(proxytest.Ctx, "counter").Int(); n != clients*rounds {
			t.Errorf("the counter is %d, want %d", n, clients*rounds)
		}
	})
}

func TestScriptFlushGoesUnnoticed(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		for range 3 {
			c.Lock("job 30")
			c.Expect("SCRIPT FLUSH", "+OK\r\n")
			c.Expect("UNLOCK job", ":1\r\n")
		}
	})
}

// Without its record, which was evicted, no client can prove that it holds the lock: it is held
// until its timeout, then free.
func TestEvictedLockRecord(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := a.Lock("job 1")
		direct.Del(proxytest.Ctx, keyname.Record([]byte("job")))
		a.Expect(proxytest.Unlock("job", token), ":0\r\n")
		b.Expect("LOCK job 30", "$-1\r\n")
		if got := b.Do("LOCKINFO job"); !strings.Contains(got, "$9\r\ntimestamp\r\n") {
			t.Errorf("LOCKINFO: %q", got)
		}
		time.Sleep(1010 * time.Millisecond)
		if next := b.Lock("job 30"); next <= token {
			t.Errorf("token %d after %d", next, token)
		}
		// Foreign data at the record's key is left alone, whatever its type.
		for _, foreign := range []string{"SET %s data", "RPUSH %s data", "SET %s 1795226400123"} {
			direct.FlushAll(proxytest.Ctx)
			b.Do(fmt.Sprintf(foreign, keyname.Record([]byte("job"))))
			b.Expect("LOCK job 30", "-WRONGTYPE…")
			b.Expect("EXISTS job "+keyname.Record([]byte("job")), ":1\r\n")
		}
	})
}
