//go:build clients

package clients_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testwait"
)

// testTakeover: a live lock of either kind refuses the other, an expired one doesn't.
func (b *olderBed) testTakeover(t *testing.T) {
	var wg sync.WaitGroup // not t.Parallel, which would let only a few sleep at a time
	defer wg.Wait()
	for _, p := range olderPublished {
		if p.noFree {
			continue // acquires as L4 fixed does
		}
		for _, unit := range []string{"s", "ms"} {
			if p.unit == "ms" && unit == "s" {
				continue // see testForeignUnit
			}
			wg.Go(func() {
				t.Run(p.name+" at "+unit, func(t *testing.T) { b.testTakeoverOf(t, p, unit) })
			})
		}
	}
}

func (b *olderBed) testTakeoverOf(t *testing.T, p olderProgram, unit string) {
	ctx, c, direct := t.Context(), b.client(t, unit), b.client(t, "direct")
	key := "takeover:" + p.name + ":" + unit
	one := []olderProgram{p}

	// A live LOCK refuses the program. When its holder is gone the program has the lock: its key
	// expires, or stays like an older lock's.
	for _, stays := range []bool{false, true} {
		if stays && p.unit != unit {
			continue // with seconds a time in ms never expires
		}
		token := olderLock(t, c, key, 600)
		if stays {
			direct.Persist(ctx, key)
		} else if ttl := direct.PTTL(ctx, key).Val(); ttl < 5*time.Minute || ttl > 11*time.Minute {
			t.Errorf("the key of a LOCK for ten minutes lives for %v", ttl)
		}
		testwait.Until(t, p.name+" tries to get a live LOCK", func() bool {
			r := b.program(t, p, unit, key, time.Second)
			if r.Acquisitions != 0 {
				t.Fatalf("next to a live LOCK: %d acquisitions, key staying: %v", r.Acquisitions,
					stays)
			}
			return r.Failures > 0
		})
		if stays {
			olderDelete(t, direct, key)
			token = olderLock(t, c, key, 1)
			direct.Persist(ctx, key)
		} else {
			if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
				t.Errorf("UNLOCK after %s had tried: %v", p.name, got)
			}
			token = olderLock(t, c, key, 600)
			direct.PExpire(ctx, key, time.Millisecond)
		}
		b.runUntil(t, unit, key, 3*time.Second, one, func(reports []olderReport) string {
			if reports[0].Acquisitions == 0 {
				return "an expired LOCK was not taken over"
			}
			return ""
		})
		if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(0) {
			t.Errorf("UNLOCK after the takeover: %v", got)
		}
	}

	testwait.Until(t, "a lock of a crashed holder that refuses LOCK first",
		func() bool { return b.testCrashed(t, p, unit, key) })

	// One that crashed long ago.
	olderDelete(t, direct, key)
	direct.Set(ctx, key, olderStamp(p.unit, time.Now().Add(-time.Hour)), 0)
	token := olderLock(t, c, key, 600)
	if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
		t.Errorf("UNLOCK of the lock taken over from long ago: %v", got)
	}
	testwait.Until(t, p.name+" tries", func() bool {
		direct.Set(ctx, key, olderStamp(p.unit, time.Now().Add(-time.Hour)), 0)
		r := b.run(t, unit, key, time.Second, one)[0]
		if r.Failures > 0 {
			t.Fatalf("one from long ago: %d failed tries", r.Failures)
		}
		return r.Acquisitions > 0
	})
}

// testCrashed lets LOCK take the lock of a holder of the older lock that has crashed: when that has
// expired by the clock of Redis, and not before. It reports whether LOCK was refused before, which
// can come too late for that.
func (b *olderBed) testCrashed(t *testing.T, p olderProgram, unit, key string) (refused bool) {
	t.Helper()
	ctx, c, direct := t.Context(), b.client(t, unit), b.client(t, "direct")
	olderDelete(t, direct, key)
	b.program(t, p, unit, key, time.Second, "--crash")
	var value *redis.StringCmd
	var ttl *redis.DurationCmd
	var now *redis.TimeCmd
	direct.TxPipelined(ctx, func(at redis.Pipeliner) error {
		value, ttl, now = at.Get(ctx, key), at.PTTL(ctx, key), at.Time(ctx)
		return nil
	})
	stamp, err := value.Int64()
	if err != nil {
		return false // it has expired already
	}
	expires := olderTime(p.unit, stamp)
	if end := now.Val().Add(ttl.Val()); ttl.Val() > 0 && end.Before(expires) {
		expires = end
	}
	var token int64
	testwait.Until(t, "LOCK takes the lock of a crashed holder", func() bool {
		asked := olderNow(t, direct)
		token, err = c.Do(ctx, "LOCK", key, 600).Int64()
		if err == redis.Nil {
			refused = true
			if asked.After(expires.Add(time.Second)) {
				t.Fatalf("LOCK is refused at %v, the lock expired at %v", asked, expires)
			}
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	if got := olderNow(t, direct); got.Add(5 * time.Millisecond).Before(expires) {
		t.Errorf("LOCK took a crashed holder's lock before %v, which expires at %v", got, expires)
	}
	if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
		t.Errorf("UNLOCK of the lock taken over: %v", got)
	}
	return refused
}
