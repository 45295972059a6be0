//go:build !race

package virtual_test

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualtest"
	"lockproxy/internal/test/wire"
	"lockproxy/lockcmd/keyname"
)

// A proxy whose client waits says so in the lock's record once in 400 ms at most, however often it
// polls: each time costs every Redis and replica a write.
func TestWaitingIsRecordedSeldom(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		other := proxytest.Start(t, store.URL(), nil)
		direct := proxytest.GoRedis(t, store.Addr())
		proxytest.Dial(t, p.Addr).Lock("job 3600")
		proxytest.Dial(t, other.Addr).Send("LOCK job 3600 WAIT 0")
		waits := regexp.MustCompile(` [^ :]+:(\d+):[^ ]*\n`)
		var seen []int64
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			record := direct.Get(proxytest.Ctx, keyname.Record([]byte("job"))).Val()
			found := waits.FindStringSubmatch(record)
			if found == nil {
				continue
			}
			at, _ := strconv.ParseInt(found[1], 10, 64)
			if n := len(seen); n == 0 || at != seen[n-1] {
				seen = append(seen, at)
			}
		}
		for i := 2; i < len(seen); i++ { // at its second poll it knows since when it waits
			if after := seen[i] - seen[i-1]; after < 400 {
				t.Errorf("it was recorded again after %d ms", after)
			}
		}
		if len(seen) < 5 {
			t.Errorf("in 5 s it was recorded %d times", len(seen))
		}
	})
}

// LOCKINFO knows nothing of a foreign lock that the proxy has not seen but its kind and its end.
func TestLockInfoOfUnseenForeignLocks(t *testing.T) {
	virtualtest.Run(t, func(t *testing.T) {
		store, p := virtualtest.StartBoth(t)
		direct, c := proxytest.GoRedis(t, store.Addr()), proxytest.Dial(t, p.Addr)
		until := time.Now().Add(time.Hour)
		direct.Set(proxytest.Ctx, "other", "random", time.Hour)
		direct.Set(proxytest.Ctx, "timestamp", until.UnixMilli(), 0)
		for _, kind := range []string{"other", "timestamp"} {
			info, err := wire.Parse(c.Do("LOCKINFO " + kind))
			if err != nil {
				t.Fatal(err)
			}
			fields := map[string]wire.Value{}
			for i := 0; i+1 < len(info.Elems); i += 2 {
				fields[info.Elems[i].Text] = info.Elems[i+1]
			}
			for _, unknown := range []string{"token", "owner", "client", "acquired_ms", "held_ms"} {
				if v, ok := fields[unknown]; !ok || !v.IsNull() {
					t.Errorf("%s: %s is %v", kind, unknown, v)
				}
			}
			for name, want := range map[string]string{"state": "held", "kind": kind,
				"mode": "exclusive"} {
				if got := fields[name].Text; got != want {
					t.Errorf("%s: %s is %q", kind, name, got)
				}
			}
			for name, want := range map[string]int64{"expires_ms": until.UnixMilli(),
				"remaining_ms": time.Hour.Milliseconds(), "session": 0, "holders": 1} {
				if got := fields[name].Int; got != want {
					t.Errorf("%s: %s is %d", kind, name, got)
				}
			}
		}
	})
}
