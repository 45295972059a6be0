//go:build !race

package virtual_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/journal"
	"lockproxy/internal/names"
	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/virtualtest"
)

// eventsOf are the events of a lock, the oldest first, as words.
func eventsOf(p *proxytest.Proxy, key string) string {
	list, _ := p.Server.Locks().Events(100, func(e *journal.Event) bool { return e.Key == key })
	var words []string
	for i := len(list) - 1; i >= 0; i-- {
		words = append(words, list[i].Kind.String())
	}
	return strings.Join(words, " ")
}

// costOf is what a lock has cost within the last hour.
func costOf(p *proxytest.Proxy, key string) (c journal.Cost) {
	for _, c := range p.Server.Locks().Costs(journal.Window, func(id names.Lock) bool {
		return id.Key == key
	}) {
		return c
	}
	return c
}

// However a lock ends, its history says how.
func TestHistoryOfALock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		other := proxytest.Dial(t, p.Addr)
		direct := proxytest.GoRedis(t, server.Addr())
		for i, c := range []struct {
			options string
			end     func(c *proxytest.Conn, key string)
			events  string
		}{
			{"30", func(c *proxytest.Conn, key string) { c.Do("UNLOCK " + key) }, "acquired released"},
			{"30", func(_ *proxytest.Conn, key string) { other.Do("UNLOCK " + key + " FORCE") },
				"acquired forced"},
			{"30 SESSION", func(c *proxytest.Conn, _ string) { c.Close() }, "acquired disconnected"},
			{"0.05", func(*proxytest.Conn, string) { time.Sleep(1200 * time.Millisecond) },
				"acquired expired"},
			{"0.6 SESSION", func(c *proxytest.Conn, key string) {
				direct.Del(proxytest.Ctx, key)
				c.Closed()
			}, "acquired lost"},
			{"0.6 SESSION", func(c *proxytest.Conn, key string) {
				direct.Set(proxytest.Ctx, key, "x", 0)
				c.Closed()
			}, "acquired deleted"},
			{"30 SESSION", func(c *proxytest.Conn, key string) {
				other.Do("DEL " + key)
				c.Closed()
			}, "acquired deleted"},
			{"0.6 SESSION", func(c *proxytest.Conn, key string) {
				other.Do("UNLOCK " + key + " FORCE")
				c.Closed()
			}, "acquired forced"},
		} {
			key := fmt.Sprint("job-", i)
			conn := proxytest.Dial(t, p.Addr)
			conn.Lock(key + " " + c.options)
			time.Sleep(time.Millisecond)
			c.end(conn, key)
			testwait.Until(t, c.events, func() bool {
				return eventsOf(p, key) == c.events
			})
			if cost := costOf(p, key); cost.Acquired != 1 || cost.Hold <= 0 || cost.Waits != 0 {
				t.Errorf("%s: %+v", c.events, cost)
			}
		}
	})
}

// Waits that go on count, and are blamed on the holder, also on one that got the lock through
// another proxy, and on a foreign client.
func TestWaitsAreBlamed(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		q := proxytest.Start(t, server.URL(), nil)
		proxytest.GoRedis(t, server.Addr()).Set(proxytest.Ctx, "foreign", "x", time.Minute)
		near, far := proxytest.Dial(t, p.Addr), proxytest.Dial(t, q.Addr)
		near.Lock("near 30 OWNER anna")
		far.Lock("far 30 OWNER bert")
		near.Expect("LOCK near 30", "$-1\r\n")
		var waiters []*proxytest.Conn
		start := time.Now()
		for i, key := range []string{"near", "near", "far", "foreign"} {
			c := proxytest.Dial(t, p.Addr)
			c.Send("LOCK " + key + " 30 WAIT 10")
			waiters = append(waiters, c)
			if key == "near" { // they are given it in this order
				proxytest.AwaitWaiters(t, p, key, i+1)
			}
		}
		for key, who := range map[string]string{
			"near": "anna", "far": "bert", "foreign": "a foreign client",
		} {
			blamed := func() (d time.Duration) {
				for _, b := range costOf(p, key).Blame {
					if b.Holder == who {
						d = b.Wait
					}
				}
				return d
			}
			testwait.Until(t, who+" is blamed",
				func() bool { return blamed() > 200*time.Millisecond })
		}
		c := costOf(p, "near")
		if since := time.Since(start); c.Waits != 2 || c.Refused != 1 || c.Wait > 2*since ||
			c.LongestWait > since || c.LongestWait < c.Wait/2-time.Millisecond {
			t.Errorf("after %v: %+v", since, c)
		}
		near.Expect("UNLOCK near", ":1\r\n")
		waiters[0].Reply()
		list, _ := p.Server.Locks().Events(1, func(e *journal.Event) bool { return e.Key == "near" })
		if len(list) != 1 || list[0].Kind != journal.Acquired || list[0].Wait < 200*time.Millisecond ||
			list[0].Ago() > time.Second ||
			list[0].Client != waiters[0].LocalAddr().String() {
			t.Errorf("%+v", list)
		}
	})
}
