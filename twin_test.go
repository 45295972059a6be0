package lockproxy_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/proxy"
)

// A recipe's timestamp may be to the letter the one that LOCK had written, easily so in seconds. It is the recipe's: no lock command frees,
// renews or fences by it.
func TestSameTimestampIsAnothers(t *testing.T) {
	server, ms := startBoth(t)
	seconds := startProxy(t, server.URL(), func(c *proxy.Config) { c.Locks.Seconds = true })
	direct := goRedis(t, server.Addr())
	for unit, p := range map[string]*testProxy{"ms": ms, "s": seconds} {
		for _, proof := range []string{"token", "connection"} {
			key := "job-" + unit + "-" + proof
			a, b := dial(t, p.addr), dial(t, p.addr)
			token := strconv.FormatInt(a.lock(key+" 30"), 10)
			value := direct.Get(ctx, key).Val()
			direct.Del(ctx, key)
			if !direct.SetNX(ctx, key, value, 0).Val() {
				t.Fatal("SETNX lost")
			}
			b.expect("LOCK "+key+" 30", "$-1\r\n")
			a.expect("RELOCK "+key+" "+token+" 60", ":0\r\n")
			a.expect("FENCE "+key+" "+token+" SET "+key+":done 1", "-FENCED …")
			if info := b.do("LOCKINFO " + key); !strings.Contains(info, "\r\ntimestamp\r\n") {
				t.Errorf("%s: LOCKINFO says %q", key, info)
			}
			if proof == "token" {
				a.expect("UNLOCK "+key+" "+token, ":0\r\n")
			} else {
				a.expect("UNLOCK "+key, ":0\r\n")
			}
			if got := direct.Get(ctx, key).Val(); got != value {
				t.Errorf("%s: the recipe's timestamp %s has become %q", key, value, got)
			}
			b.expect("UNLOCK "+key+" FORCE", ":1\r\n")
			direct.Del(ctx, key)
		}
	}
}

// Its owner asks once more for a lock that settles, through another proxy, since its own is gone: then the other looks after it.
func TestOwnerBackWhileSettling(t *testing.T) {
	server, first := startBoth(t)
	second := startProxy(t, server.URL(), nil)
	direct := goRedis(t, server.Addr())
	direct.Set(ctx, "job", time.Now().Unix()-10, 0)
	token := dial(t, first.addr).lock("job 30 OWNER me")
	first.server.Close()
	c := dial(t, second.addr)
	if again := c.lock("job 30 OWNER me"); again != token {
		t.Fatalf("its owner was given %d, had %d", again, token)
	}
	written := direct.Get(ctx, "job").Val()
	direct.GetSet(ctx, "job", strconv.FormatInt(time.Now().Unix()+5, 10))
	eventually(t, 600*time.Millisecond, "the timestamp is put right", func() bool { return direct.Get(ctx, "job").Val() == written })
	time.Sleep(2 * time.Second) // it has settled
	c.expect(unlock("job", token), ":1\r\n")
}
