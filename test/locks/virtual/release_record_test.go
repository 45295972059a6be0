//go:build !race

package virtual_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/lockcmd/keyname"
	"lockproxy/proxy"
)

// A release mostly leaves the lock record as it was. It frees the lock all the same: nothing that
// proved the lock proves it any more, and the next token is greater.
func TestReleaseLeavesTheRecord(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		direct := proxytest.GoRedis(t, server.Addr())
		for _, how := range []string{"token", "connection", "force"} {
			key := "job-" + how
			record := keyname.Record([]byte(key))
			a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			token := a.Lock(key + " 30 OWNER me")
			before := direct.Get(proxytest.Ctx, record).Val()
			switch how {
			case "token":
				b.Expect(proxytest.Unlock(key, token), ":1\r\n")
			case "connection":
				a.Expect("UNLOCK "+key, ":1\r\n")
			case "force":
				b.Expect("UNLOCK "+key+" FORCE", ":1\r\n")
			}

			if got := direct.Get(proxytest.Ctx, record).Val(); got != before || before == "" {
				t.Errorf("%s: the record %q has become %q", how, before, got)
			}
			if ttl := direct.PTTL(proxytest.Ctx, record).Val(); ttl < 10*time.Minute {
				t.Errorf("%s: the record's TTL is %v, less than the retention", how, ttl)
			}
			for _, c := range []*proxytest.Conn{a, b} {
				c.Expect("UNLOCK "+key, ":0\r\n")
				c.Expect(proxytest.Unlock(key, token), ":0\r\n")
				c.Expect("UNLOCK "+key+" FORCE", ":0\r\n")
				c.Expect(fmt.Sprintf("RELOCK %s %d 30", key, token), ":0\r\n")
				c.Expect(fmt.Sprintf("FENCE %s %d SET fenced 1", key, token), "-FENCED …")
				c.Expect("LOCKINFO "+key, "$-1\r\n")
			}
			a.Expect("LOCKSCAN 0 MATCH * COUNT 1000", "*2\r\n$1\r\n0\r\n*0\r\n")
			again := a.Lock(key + " 30 OWNER me")
			if again <= token {
				t.Errorf("%s: its owner was given %d after %d", how, again, token)
			}
			b.Expect(proxytest.Unlock(key, token), ":0\r\n")
			b.Expect(proxytest.Unlock(key, again), ":1\r\n")
		}
	})
}

// A record that would live for much longer than the retention is shortened by the release.
func TestReleaseShortensALongRecord(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		short := proxytest.Start(t, server.URL(), func(c *proxy.Config) {
			c.Locks.FenceRetention = 20 * time.Second
		})
		direct := proxytest.GoRedis(t, server.Addr())
		for _, locked := range []struct {
			addr, timeout, again string
			most                 time.Duration
		}{
			{p.Addr, "600", "", 20 * time.Minute},
			{p.Addr, "601", "", 10 * time.Minute},
			{p.Addr, "30", "3600", 10 * time.Minute},
			{short.Addr, "21", "", 20 * time.Second},
			{short.Addr, "20", "", 40 * time.Second},
		} {
			key := "job" + locked.timeout + "-" + locked.again
			c := proxytest.Dial(t, locked.addr)
			token := c.Lock(key + " " + locked.timeout)
			if locked.again != "" {
				c.Expect(fmt.Sprintf("RELOCK %s %d %s", key, token, locked.again), ":1\r\n")
			}
			c.Expect("UNLOCK "+key, ":1\r\n")
			ttl := direct.PTTL(proxytest.Ctx, keyname.Record([]byte(key))).Val()
			if ttl > locked.most || ttl < locked.most/2-time.Second {
				t.Errorf("%s: the record's TTL is %v", key, ttl)
			}
			if again := c.Lock(key + " 1"); again <= token {
				t.Errorf("%s: token %d after %d", key, again, token)
			}
		}
	})
}

// A renewal of a session lock that was released elsewhere does not bring it back.
func TestRenewalDoesNotReviveAReleasedLock(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, p := virtualtest.StartBoth(t)
		other := proxytest.Start(t, server.URL(), nil)
		direct := proxytest.GoRedis(t, server.Addr())
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, other.Addr)
		token := a.Lock("job 0.6 SESSION")
		b.Expect(proxytest.Unlock("job", token), ":1\r\n")
		a.Closed() // the renewal has found that the lock is lost
		if n := direct.Exists(proxytest.Ctx, "job").Val(); n != 0 {
			t.Error("a renewal has taken the lock again")
		}
		b.Lock("job 30")
	})
}
