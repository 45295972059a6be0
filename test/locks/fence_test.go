package locks_test

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lockproxy/internal/faults/relay"
	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/internal/testwait"
)

// FENCE costs two round trips, even while clients wait for the lock at three proxies.
func TestFenceTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	const away = 100 * time.Millisecond
	for _, waiting := range []bool{false, true} {
		t.Run(fmt.Sprintf("waiting %v", waiting), func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			link := proxytest.LinkTo(t, server)
			var proxies []*proxytest.Proxy
			for range 3 {
				proxies = append(proxies, proxytest.Start(t, "redis://"+link.Addr(), nil))
			}
			c := proxytest.SharedClient(t, proxies[0].Addr)
			token := c.Lock("job 60")
			fence := fmt.Sprintf("FENCE job %d INCR n", token)
			c.Expect(fence, ":1\r\n")
			link.Set(relay.Link{Latency: away / 2})
			for _, p := range proxies {
				if waiting {
					proxytest.Dial(t, p.Addr).Send("LOCK job 60 WAIT 60")
					testwait.Until(t, "a client waits", func() bool {
						return proxytest.Waiters(t, p, "job") == 1
					})
				}
			}
			const times = 20
			var sum, roundTrips time.Duration
			for i := range times {
				start := time.Now()
				c.Expect("GET n", proxytest.Bulk(fmt.Sprint(i+1)))
				roundTrips += time.Since(start)
				start = time.Now()
				c.Expect(fence, fmt.Sprintf(":%d\r\n", i+2))
				sum += time.Since(start)
			}
			t.Logf("%v each, of which a round trip takes %v", sum/times, roundTrips/times)
			if 2*sum >= 5*roundTrips {
				t.Errorf("%v each, of which a round trip takes %v: want two round trips",
					sum/times, roundTrips/times)
			}
		})
	}
}

// A renewal between FENCE's round trips makes it begin again: it doesn't fail.
func TestFenceDuringRenewals(t *testing.T) {
	t.Parallel()
	_, c := farAway(t, 10*time.Millisecond)
	token := c.Lock("job 1.5 SESSION")
	for i := range 150 { // more than five seconds: ten renewals
		c.Expect(fmt.Sprintf("FENCE job %d INCR n", token), fmt.Sprintf(":%d\r\n", i+1))
	}
}

// XREAD and XREADGROUP can be fenced, unless they block.
func TestFenceReadsStreams(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
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
}

// In the grace period a fenced write first repairs the timestamp. Otherwise a
// write that is checked just before the end of that period, and run after it,
// would pass although the lock is a foreign client's by then.
func TestFenceAtEndOfGracePeriod(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	direct := proxytest.GoRedis(t, server.Addr())
	links := [2]*relay.Relay{proxytest.LinkTo(t, server), proxytest.LinkTo(t, server)}
	holder := proxytest.Dial(t, proxytest.Start(t, "redis://"+links[0].Addr(), nil).Addr)
	writer := proxytest.SharedClient(t, proxytest.Start(t, "redis://"+links[1].Addr(), nil).Addr)
	writer.Expect(fmt.Sprintf("FENCE other %d PING", writer.Lock("other 30")), "+PONG\r\n")

	for i := range 5 {
		key := fmt.Sprint("job", i)
		now := time.Now()
		// a foreign client's, expired
		direct.Set(proxytest.Ctx, key, now.Add(-time.Second).UnixMilli(), 0)
		token := holder.Lock(key + " 30")
		taken := time.Now()
		links[0].Set(relay.Link{HoldUp: true}) // the proxy that took it over can't repair it
		foreign := strconv.FormatInt(now.Add(time.Minute).UnixMilli(), 10)
		direct.Set(proxytest.Ctx, key, foreign, 0)

		links[1].Set(relay.Link{Latency: 300 * time.Millisecond})
		// The grace period is 2 s. The check runs 1.7 s after the takeover, and the write 2.3 s.
		time.Sleep(time.Until(taken.Add(1400 * time.Millisecond)))
		got := writer.Do(fmt.Sprintf("FENCE %s %d SET x 1", key, token))
		value := direct.Get(proxytest.Ctx, key).Val()
		links[0].Set(relay.Link{})
		if strings.HasPrefix(got, "-FENCED") {
			t.Logf("the check came too late, next try")
			continue
		}
		if got != "+OK\r\n" || value == foreign {
			t.Errorf("%q, although the lock's key is %s, a foreign client's", got, value)
		}
		return
	}
	t.Fatal("the check never fell within the grace period")
}

func TestFence(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	c.Expect("SET text x", "+OK\r\n")
	token := c.Lock("job 30")
	fence := fmt.Sprintf("FENCE job %d ", token)
	for command, want := range map[string]string{
		"SET a 1": "+OK\r\n", "LPOP none 2": "*-1\r\n", "GET none": "$-1\r\n",
		"NOSUCH": "-ERR unknown command 'NOSUCH'…", "LPUSH text x": "-WRONGTYPE…",
		"INCRBY n 9007199254740993": ":9007199254740993\r\n",
	} {
		c.Expect(fence+command, want)
	}
	c.Expect("HELLO 3", "%7…")
	c.Expect(fence+"HSET h f v", ":1\r\n")
	c.Expect(fence+"HGETALL h", "%1\r\n$1\r\nf\r\n$1\r\nv\r\n")
	c.Expect(fence+"ZADD z 1.5 m", ":1\r\n")
	c.Expect(fence+"ZSCORE z m", ",1.5\r\n")
	c.Expect(fence+"GET none", "_\r\n")
	c.Expect(fence+"EVAL return{1} 0", "*1\r\n:1\r\n")
	other.Expect(fence+"SET a 2", "+OK\r\n") // the token is the right

	c.Expect("WATCH a", "+OK\r\n")
	c.Expect(fence+"SET a 3", "-ERR FENCE can't be used between WATCH and MULTI…")
	c.Expect("UNWATCH", "+OK\r\n")
	c.Expect("UNLOCK job", ":1\r\n")
	c.Expect(fence+"SET a 4", "-FENCED …")
	c.Expect("FENCE job 1 SET a 4", "-FENCED …")
	c.Expect("GET a", "$1\r\n2\r\n")
	// Nothing of it is left on the connection.
	c.Send("MULTI", "SET a 5", "EXEC")
	for _, want := range []string{"+OK", "+QUEUED", "*1\r\n+OK"} {
		if got := c.Reply(); !strings.HasPrefix(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	// One holder was paused past its timeout, and one lost its lock to another client since.
	token = c.Lock("job 0.05")
	time.Sleep(60 * time.Millisecond)
	c.Expect(fmt.Sprintf("FENCE job %d SET a 6", token), "-FENCED …")
	other.Lock("job 30")
	c.Expect(fmt.Sprintf("FENCE job %d SET a 6", token), "-FENCED …")
	_ = server
}

// Fenced writes of newer holders are never overtaken by those of older ones, whatever is paused.
func TestFencedWritesKeepTheOrderOfTokens(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	const enough = 20 // writes; on a slow machine most tokens have expired when they come
	began := time.Now()
	var written atomic.Int64
	more := func() bool {
		passed := time.Since(began)
		return passed < 2*time.Second || written.Load() < enough && passed < 20*time.Second
	}
	var wg sync.WaitGroup
	for range 16 {
		c := proxytest.GoRedis(t, p.Addr)
		wg.Go(func() {
			for more() {
				token, err := c.Do(proxytest.Ctx, "LOCK", "job", "0.01", "WAIT", "5").Int64()
				if err != nil {
					t.Error(err)
					return
				}
				for range 8 { // well past the timeout
					fenced := c.Do(proxytest.Ctx, "FENCE", "job", token, "RPUSH", "log", token)
					if fenced.Err() == nil {
						written.Add(1)
					}
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
	if len(log) < enough {
		t.Errorf("only %d writes", len(log))
	}
}

// A client that closes its sending side after its FENCE, as printf … | nc does, is answered.
func TestFenceOfAHalfClosedClient(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	holder := proxytest.Dial(t, p.Addr)
	for key, mode := range map[string]string{"own": "", "shared": "SHARED"} {
		token := holder.Lock(key + " 60 " + mode)
		c := proxytest.Dial(t, p.Addr)
		c.WriteRaw(fmt.Sprintf("FENCE %s %d SET x 1\r\n", key, token))
		c.Conn.(*net.TCPConn).CloseWrite()
		if got := c.Reply(); got != "+OK\r\n" {
			t.Errorf("%s: %q", key, got)
		}
	}
}
