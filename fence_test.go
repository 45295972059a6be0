package lockproxy_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/faults/relay"
	"lockproxy/internal/testredis"
)

// FENCE costs two round trips, also while clients wait for the lock at three proxies.
func TestFenceTakesTwoRoundTrips(t *testing.T) {
	const away = 100 * time.Millisecond
	for _, waiting := range []bool{false, true} {
		t.Run(fmt.Sprintf("waiting %v", waiting), func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t)
			link := linkTo(t, server)
			var proxies []*testProxy
			for range 3 {
				proxies = append(proxies, startProxy(t, "redis://"+link.Addr(), nil))
			}
			c := trusted(t, proxies[0].addr)
			token := c.lock("job 60")
			fence := fmt.Sprintf("FENCE job %d INCR n", token)
			c.expect(fence, ":1\r\n")
			link.Set(relay.Link{Latency: away / 2})
			for _, p := range proxies {
				if waiting {
					dial(t, p.addr).send("LOCK job 60 WAIT 60")
					eventually(t, 5*time.Second, "it waits", func() bool { return waiters(t, p, "job") == 1 })
				}
			}
			const times = 20
			var sum time.Duration
			for i := range times {
				start := time.Now()
				c.expect(fence, fmt.Sprintf(":%d\r\n", i+2))
				sum += time.Since(start)
			}
			mean := sum / times
			t.Logf("%v each, of which a round trip takes %v", mean, away)
			if mean >= 5*away/2 {
				t.Errorf("%v each, of which a round trip takes %v: want two round trips", mean, away)
			}
		})
	}
}

// A renewal between FENCE's round trips has it begin again: it doesn't fail.
func TestFenceBesideRenewals(t *testing.T) {
	_, c := farAway(t, 10*time.Millisecond)
	token := c.lock("job 0.3 SESSION")
	for i := range 30 { // a second: ten renewals
		c.expect(fmt.Sprintf("FENCE job %d INCR n", token), fmt.Sprintf(":%d\r\n", i+1))
	}
}

// XREAD and XREADGROUP can be fenced, unless they block.
func TestFenceReadsStreams(t *testing.T) {
	_, p := startBoth(t)
	c := dial(t, p.addr)
	fence := fmt.Sprintf("FENCE job %d ", c.lock("job 30"))
	c.expect("XADD s 1-1 f v", "$3\r\n1-1\r\n")
	c.expect("XGROUP CREATE s g 0", "+OK\r\n")
	const entry = "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n"
	c.expect(fence+"XREAD COUNT 1 STREAMS s 0", entry)
	c.expect(fence+"XREADGROUP GROUP g me STREAMS s >", entry)
	c.expect(fence+"XREADGROUP GROUP g me STREAMS s >", "*-1\r\n")
	c.expect(fence+"XREAD BLOCK 10 STREAMS s 0", "-ERR 'xread' can't be fenced: it blocks…")
	c.expect(fence+"XREADGROUP GROUP g me BLOCK 10 STREAMS s >", "-ERR 'xreadgroup' can't be fenced: it blocks…")
	c.expect("PING", "+PONG\r\n")
}

// While a lock that was taken over settles, a fenced write first puts its timestamp right. Otherwise a write that is checked just
// before the end of that time, and run behind it, would pass though the lock is a plain client's by then.
func TestFenceAtTheEndOfSettling(t *testing.T) {
	server := testredis.Start(t)
	direct := goRedis(t, server.Addr())
	links := [2]*relay.Relay{linkTo(t, server), linkTo(t, server)}
	holder := dial(t, startProxy(t, "redis://"+links[0].Addr(), nil).addr)
	writer := trusted(t, startProxy(t, "redis://"+links[1].Addr(), nil).addr)
	writer.expect(fmt.Sprintf("FENCE other %d PING", writer.lock("other 30")), "+PONG\r\n")

	for i := range 5 {
		key := fmt.Sprint("job", i)
		now := time.Now()
		direct.Set(ctx, key, now.Add(-time.Second).UnixMilli(), 0) // a plain client's, expired
		token := holder.lock(key + " 30")
		taken := time.Now()
		links[0].Set(relay.Link{HoldUp: true}) // the proxy that took it over can't look after it
		foreign := strconv.FormatInt(now.Add(time.Minute).UnixMilli(), 10)
		direct.Set(ctx, key, foreign, 0)

		links[1].Set(relay.Link{Latency: 300 * time.Millisecond})
		// It settles for 2 s. The check runs 1.7 s after the takeover, and the write 2.3 s.
		time.Sleep(time.Until(taken.Add(1400 * time.Millisecond)))
		got := writer.do(fmt.Sprintf("FENCE %s %d SET x 1", key, token))
		value := direct.Get(ctx, key).Val()
		links[0].Set(relay.Link{})
		if strings.HasPrefix(got, "-FENCED") {
			t.Logf("checked too late, tried again")
			continue
		}
		if got != "+OK\r\n" || value == foreign {
			t.Errorf("%q, though the lock's key is %s, a plain client's", got, value)
		}
		return
	}
	t.Fatal("never checked within the settling time")
}
