//go:build clients

package clients_test

import (
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
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

	// A live LOCK.
	token := olderLock(t, c, key, 30)
	if r := b.program(t, p, unit, key, time.Second); r.Acquisitions != 0 || r.Failures == 0 {
		t.Errorf("next to a live LOCK: %d acquisitions, %d failed tries", r.Acquisitions,
			r.Failures)
	}
	if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
		t.Errorf("UNLOCK after %s had tried: %v", p.name, got)
	}

	// The holder of a LOCK is gone: its key expires, or stays like an older lock's.
	for _, stays := range []bool{false, true} {
		if stays && p.unit != unit {
			continue // with seconds a time in ms never expires
		}
		token := olderLock(t, c, key, 1)
		if stays {
			direct.Persist(ctx, key)
		}
		r := b.run(t, unit, key, 4*time.Second, one)[0]
		if r.Acquisitions == 0 {
			t.Errorf("an expired LOCK was not taken over, key staying: %v", stays)
		}
		if r.LongestWaitMS < 500 { // some of the second is over before the program polls
			t.Errorf("a LOCK for 1 s was taken over after %d ms", r.LongestWaitMS)
		}
		if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(0) {
			t.Errorf("UNLOCK after the takeover: %v", got)
		}
	}

	// A crashed holder of the older lock.
	b.program(t, p, unit, key, time.Second, "--crash")
	value, _ := direct.Get(ctx, key).Int64()
	expires := olderTime(p.unit, value)
	if ttl := direct.PTTL(ctx, key).Val(); ttl > 0 {
		if end := time.Now().Add(ttl); end.Before(expires) {
			expires = end
		}
	}
	refused := 0
	for time.Now().Before(expires.Add(2 * time.Second)) {
		asked := time.Now()
		reply, err := c.Do(ctx, "LOCK", key, 5).Int64()
		if err == redis.Nil {
			refused++
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		token = reply
		if early := expires.Sub(time.Now()); early > 5*time.Millisecond {
			t.Errorf("LOCK took a crashed holder's lock %v early", early)
		}
		if late := asked.Sub(expires); late > time.Second {
			t.Errorf("LOCK took a crashed holder's lock %v late", late)
		}
		break
	}
	if refused == 0 {
		t.Error("LOCK was not refused while the older lock was alive")
	}
	if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
		t.Errorf("UNLOCK of the lock taken over: %v", got)
	}

	// One that crashed long ago.
	olderDelete(t, direct, key)
	direct.Set(ctx, key, olderStamp(p.unit, time.Now().Add(-time.Hour)), 0)
	token = olderLock(t, c, key, 5)
	if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
		t.Errorf("UNLOCK of the lock taken over from long ago: %v", got)
	}
	direct.Set(ctx, key, olderStamp(p.unit, time.Now().Add(-time.Hour)), 0)
	if r := b.run(t, unit, key, time.Second, one)[0]; r.Acquisitions == 0 || r.LongestWaitMS > 500 {
		t.Errorf("one from long ago: %d acquisitions, longest wait %d ms", r.Acquisitions,
			r.LongestWaitMS)
	}
}
