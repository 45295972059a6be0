package locks_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/proxy"
)

// A recipe's timestamp can be the same as the one that LOCK had written, easily so in seconds. The
// lock is the recipe's: no lock command frees, renews or fences by it.
func TestSameTimestampIsForeign(t *testing.T) {
	server, ms := proxytest.StartBoth(t)
	seconds := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.Locks.Seconds = true })
	direct := proxytest.GoRedis(t, server.Addr())
	for unit, p := range map[string]*proxytest.Proxy{"ms": ms, "s": seconds} {
		for _, proof := range []string{"token", "connection"} {
			key := "job-" + unit + "-" + proof
			a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
			token := strconv.FormatInt(a.Lock(key+" 30"), 10)
			value := direct.Get(proxytest.Ctx, key).Val()
			direct.Del(proxytest.Ctx, key)
			if !direct.SetNX(proxytest.Ctx, key, value, 0).Val() {
				t.Fatal("SETNX lost")
			}
			b.Expect("LOCK "+key+" 30", "$-1\r\n")
			a.Expect("RELOCK "+key+" "+token+" 60", ":0\r\n")
			a.Expect("FENCE "+key+" "+token+" SET "+key+":done 1", "-FENCED …")
			if info := b.Do("LOCKINFO " + key); !strings.Contains(info, "\r\ntimestamp\r\n") {
				t.Errorf("%s: LOCKINFO says %q", key, info)
			}
			if proof == "token" {
				a.Expect("UNLOCK "+key+" "+token, ":0\r\n")
			} else {
				a.Expect("UNLOCK "+key, ":0\r\n")
			}
			if got := direct.Get(proxytest.Ctx, key).Val(); got != value {
				t.Errorf("%s: the recipe's timestamp %s has become %q", key, value, got)
			}
			b.Expect("UNLOCK "+key+" FORCE", ":1\r\n")
			direct.Del(proxytest.Ctx, key)
		}
	}
}

// In the grace period the owner asks again through another proxy, since its own is gone: the other
// proxy repairs the timestamp.
func TestOwnerReturnsInGracePeriod(t *testing.T) {
	t.Parallel()
	server, first := proxytest.StartBoth(t)
	second := proxytest.Start(t, server.URL(), nil)
	direct := proxytest.GoRedis(t, server.Addr())
	direct.Set(proxytest.Ctx, "job", time.Now().Unix()-10, 0)
	token := proxytest.Dial(t, first.Addr).Lock("job 30 OWNER me")
	first.Server.Close()
	c := proxytest.Dial(t, second.Addr)
	if again := c.Lock("job 30 OWNER me"); again != token {
		t.Fatalf("its owner got token %d, had %d", again, token)
	}
	written := direct.Get(proxytest.Ctx, "job").Val()
	direct.GetSet(proxytest.Ctx, "job", strconv.FormatInt(time.Now().Unix()+5, 10))
	proxytest.Eventually(t, 600*time.Millisecond, "the timestamp is repaired", func() bool {
		return direct.Get(proxytest.Ctx, "job").Val() == written
	})
	time.Sleep(2 * time.Second) // the grace period is over
	c.Expect(proxytest.Unlock("job", token), ":1\r\n")
}
