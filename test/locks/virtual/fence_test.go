//go:build !race

package virtual_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/internal/test/wire"
)

// FENCE costs two round trips, even while clients wait for the lock at three proxies.
func TestFenceTakesTwoRoundTrips(t *testing.T) {
	const away = 100 * time.Millisecond
	for _, waiting := range []bool{false, true} {
		t.Run(fmt.Sprintf("waiting %v", waiting), func(t *testing.T) {
			virtualtest.Run(t, func(t *testing.T) {
				server := virtualtest.StartStore(t)
				link := proxytest.LinkTo(t, server)
				var proxies []*proxytest.Proxy
				for range 3 {
					proxies = append(proxies, proxytest.Start(t, "redis://"+link.Addr(), nil))
				}
				c := proxytest.SharedClient(t, proxies[0].Addr)
				token := c.Lock("job 60")
				fence := fmt.Sprintf("FENCE job %d INCR n", token)
				c.Expect(fence, ":1\r\n")
				link.Away(away / 2)
				for _, p := range proxies {
					if waiting {
						proxytest.Dial(t, p.Addr).Send("LOCK job 60 WAIT 60")
						testwait.Until(t, "a client waits", func() bool {
							return proxytest.Waiters(t, p, "job") == 1
						})
					}
				}
				for i := range 5 {
					start := time.Now()
					c.Expect("GET n", wire.Bulk(fmt.Sprint(i+1)))
					if took := time.Since(start); took != away {
						t.Errorf("a round trip takes %v", took)
					}
					start = time.Now()
					c.Expect(fence, fmt.Sprintf(":%d\r\n", i+2))
					if took := time.Since(start); took != 2*away {
						t.Errorf("FENCE %d took %v, want two round trips", i, took)
					}
				}
			})
		})
	}
}

// A renewal between FENCE's round trips makes it begin again: it doesn't fail.
func TestFenceDuringRenewals(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, c := farAway(t, 10*time.Millisecond)
		token := c.Lock("job 1.5 SESSION")
		for i := range 150 { // more than five seconds: ten renewals
			c.Expect(fmt.Sprintf("FENCE job %d INCR n", token), fmt.Sprintf(":%d\r\n", i+1))
		}
	})
}

// XREAD and XREADGROUP can be fenced, unless they block.
func TestFenceReadsStreams(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c := proxytest.Dial(t, p.Addr)
		fence := fmt.Sprintf("FENCE job %d ", c.Lock("job 30"))
		c.Expect("XADD s 1-1 f v", "$3\r\n1-1\r\n")
		c.Expect("XGROUP CREATE s g 0", "+OK\r\n")
		const entry = "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
		c.Expect(fence+"XREAD COUNT 1 STREAMS s 0", entry)
		c.Expect(fence+"XREADGROUP GROUP g me STREAMS s >", entry)
		c.Expect(fence+"XREADGROUP GROUP g me STREAMS s >", "*-1\r\n")
		c.Expect(fence+"XREAD BLOCK 10 STREAMS s 0", "-ERR 'xread' can't be fenced: it blocks…")
		c.Expect(fence+"XREADGROUP GROUP g me BLOCK 10 STREAMS s >",
			"-ERR 'xreadgroup' can't be fenced: it blocks…")
		c.Expect("PING", "+PONG\r\n")
	})
}

// In the grace period a fenced write first repairs the timestamp. Otherwise a
// write that is checked just before the end of that period, and run after it,
// would pass although the lock is a foreign client's by then.
func TestFenceAtEndOfGracePeriod(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server := virtualtest.StartStore(t)
		direct := proxytest.GoRedis(t, server.Addr())
		links := [2]*badlink.Link{proxytest.LinkTo(t, server), proxytest.LinkTo(t, server)}
		holder := proxytest.Dial(t, proxytest.Start(t, "redis://"+links[0].Addr(), nil).Addr)
		writer := proxytest.SharedClient(t, proxytest.Start(t, "redis://"+links[1].Addr(), nil).Addr)
		writer.Expect(fmt.Sprintf("FENCE other %d PING", writer.Lock("other 30")), "+PONG\r\n")

		const key = "job"
		now := time.Now()
		// a foreign client's, expired
		direct.Set(proxytest.Ctx, key, now.Add(-time.Second).UnixMilli(), 0)
		token := holder.Lock(key + " 30")
		taken := time.Now()
		links[0].Set(badlink.State{HoldUp: true}) // the proxy that took it over can't repair it
		foreign := strconv.FormatInt(now.Add(time.Minute).UnixMilli(), 10)
		direct.Set(proxytest.Ctx, key, foreign, 0)

		links[1].Set(badlink.State{Latency: 300 * time.Millisecond})
		// The grace period is 2 s. The check runs 1.7 s after the takeover, and the write 2.3 s.
		time.Sleep(time.Until(taken.Add(1400 * time.Millisecond)))
		got := writer.Do(fmt.Sprintf("FENCE %s %d SET x 1", key, token))
		value := direct.Get(proxytest.Ctx, key).Val()
		links[0].Set(badlink.State{})
		if got != "+OK\r\n" || value == foreign {
			t.Errorf("%q, although the lock's key is %s, a foreign client's", got, value)
		}
	})
}

// Fenced writes of newer holders are never overtaken by those of older ones, whatever is paused.
func TestFencedWritesKeepTheOrderOfTokens(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		const clients, rounds, writes = 16, 8, 8
		var wg sync.WaitGroup
		for range clients {
			c := proxytest.GoRedis(t, p.Addr)
			wg.Go(func() {
				for range rounds {
					token, err := c.Do(proxytest.Ctx, "LOCK", "job", "0.01", "WAIT", "60").Int64()
					if err != nil {
						t.Error(err)
						return
					}
					for range writes { // well past the timeout
						time.Sleep(3 * time.Millisecond)
						c.Do(proxytest.Ctx, "FENCE", "job", token, "RPUSH", "log", token)
					}
				}
			})
		}
		wg.Wait()
		log := direct.LRange(proxytest.Ctx, "log", 0, -1).Val()
		last := int64(0)
		for i, entry := range log {
			token, _ := strconv.ParseInt(entry, 10, 64)
			if token < last {
				t.Fatalf("write %d is of token %d, after %d", i, token, last)
			}
			last = token
		}
		if n := len(log); n < clients*rounds || n == clients*rounds*writes {
			t.Errorf("%d of %d writes came before the timeouts", n, clients*rounds*writes)
		}
	})
}

// A client that closes its sending side after its FENCE, as printf … | nc does, is answered.
func TestFenceOfAHalfClosedClient(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		holder := proxytest.Dial(t, p.Addr)
		for key, mode := range map[string]string{"own": "", "shared": "SHARED"} {
			token := holder.Lock(key + " 60 " + mode)
			c := proxytest.Dial(t, p.Addr)
			c.WriteRaw(fmt.Sprintf("FENCE %s %d SET x 1\r\n", key, token))
			c.Conn.(*virtualnet.Conn).CloseWrite()
			if got := c.Reply(); got != "+OK\r\n" {
				t.Errorf("%s: %q", key, got)
			}
		}
	})
}

// One holder was paused past its timeout, and one lost its lock to another client since.
func TestFenceAfterTheTimeout(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		_, p := virtualtest.StartBoth(t)
		c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		write := fmt.Sprintf("FENCE job %d SET a 1", c.Lock("job 60"))
		time.Sleep(time.Minute - time.Millisecond)
		c.Expect(write, "+OK\r\n")
		time.Sleep(time.Millisecond)
		c.Expect(write, "-FENCED …")
		other.Lock("job 60")
		c.Expect(write, "-FENCED …")
	})
}
