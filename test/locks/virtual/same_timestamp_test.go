//go:build !race

package virtual_test

import (
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/proxy"
)

// A recipe's timestamp can be the same as the one that LOCK had written, easily so in seconds. The
// lock is the recipe's: no lock command frees, renews or fences by it, whether the key was deleted
// under LOCK's holder or released.
func TestSameTimestampIsForeign(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		server, ms := virtualtest.StartBoth(t)
		seconds := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.Locks.Seconds = true })
		direct := proxytest.GoRedis(t, server.Addr())
		for unit, p := range map[string]*proxytest.Proxy{"ms": ms, "s": seconds} {
			for i, proof := range []string{"token", "connection", "token", "connection"} {
				key := "job-" + unit + "-" + proof
				a, b := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
				token := strconv.FormatInt(a.Lock(key+" 30"), 10)
				value := direct.Get(proxytest.Ctx, key).Val()
				if i < 2 {
					direct.Del(proxytest.Ctx, key)
				} else {
					a.Expect("UNLOCK "+key, ":1\r\n")
				}
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
	})
}
