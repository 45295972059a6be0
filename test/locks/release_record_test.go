package locks_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/proxytest"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// A release mostly leaves the lock record as it was. It frees the lock all the same: nothing that
// proved the lock proves it any more, and the next token is greater.
func TestReleaseLeavesTheRecord(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	for how, release := range map[string]func(a, b *proxytest.Conn, key string, token int64){
		"token":      func(_, b *proxytest.Conn, k string, n int64) { b.Expect(proxytest.Unlock(k, n), ":1\r\n") },
		"connection": func(a, _ *proxytest.Conn, k string, _ int64) { a.Expect("UNLOCK "+k, ":1\r\n") },
		"force":      func(_, b *proxytest.Conn, k string, _ int64) { b.Expect("UNLOCK "+k+" FORCE", ":1\r\n") },
	} {
		key := "job-" + how
		record := lockcmd.RecordKey([]byte(key))
		a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
		token := a.Lock(key + " 30 OWNER me")
		before := direct.Get(proxytest.Ctx, record).Val()
		release(a, b, key, token)

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
}

// A record that would live for much longer than the retention is shortened by the release.
func TestReleaseShortensALongRecord(t *testing.T) {
	server, p := proxytest.StartBoth(t)
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
		ttl := direct.PTTL(proxytest.Ctx, lockcmd.RecordKey([]byte(key))).Val()
		if ttl > locked.most || ttl < locked.most/2-time.Second {
			t.Errorf("%s: the record's TTL is %v", key, ttl)
		}
		if again := c.Lock(key + " 1"); again <= token {
			t.Errorf("%s: token %d after %d", key, again, token)
		}
	}
}

// A renewal of a session lock that was released elsewhere does not bring it back.
func TestRenewalDoesNotReviveAReleasedLock(t *testing.T) {
	server, p := proxytest.StartBoth(t)
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
}

// What a LOCK and an UNLOCK for which nobody waits cost the upstream, and a LOCK that is refused.
func TestCommandsOfALockAndItsUnlock(t *testing.T) {
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	a.Lock("job 30")
	a.Expect("UNLOCK job", ":1\r\n")
	for _, step := range []struct {
		do   func()
		want int
	}{
		{func() { a.Lock("job 30") }, 5},                   // EVALSHA, MGET, TIME, SET, SET
		{func() { b.Expect("LOCK job 30", "$-1\r\n") }, 3}, // EVALSHA, MGET, TIME
		{func() { a.Expect("UNLOCK job", ":1\r\n") }, 5},   // EVALSHA, MGET, TIME, PTTL, DEL
	} {
		direct.ConfigResetStat(proxytest.Ctx)
		step.do()
		if got := commandCalls(t, direct); got != step.want {
			t.Errorf("%d commands, not %d", got, step.want)
		}
	}
}

var callsOf = regexp.MustCompile(`cmdstat_(evalsha|eval|mget|time|set|exists|pttl|del):calls=(\d+)`)

// commandCalls is how many of the commands that lock scripts use the server has run.
func commandCalls(t *testing.T, direct *redis.Client) (sum int) {
	for _, m := range callsOf.FindAllStringSubmatch(
		direct.Info(proxytest.Ctx, "commandstats").Val(), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	return sum
}
