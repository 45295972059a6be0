//go:build clients

package clients_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// testLosingGetset does L1's steps by hand during LOCK's takeover of an expired lock.
func (b *olderBed) testLosingGetset(t *testing.T) {
	for _, unit := range []string{"s", "ms"} {
		t.Run(unit, func(t *testing.T) {
			for _, via := range []string{unit, "direct"} {
				t.Run("loser via "+via, func(t *testing.T) { b.testLosingGetsetVia(t, unit, via) })
			}
			t.Run("late", func(t *testing.T) { b.testLateGetset(t, unit) })
		})
	}
}

// olderRace leaves an expired lock at key, shows it to a
// foreign client, and lets LOCK take it over.
func olderRace(t *testing.T, foreign, c *redis.Client, key string) (token int64, value string) {
	t.Helper()
	ctx := t.Context()
	olderDelete(t, foreign, key)
	foreign.Set(ctx, key, time.Now().Unix()-10, 0)
	if got := foreign.Do(ctx, "SETNX", key, time.Now().Unix()+6).Val(); got != int64(0) {
		t.Fatalf("SETNX: %v", got)
	}
	if old, err := foreign.Get(ctx, key).Int64(); err != nil || old > time.Now().Unix() {
		t.Fatalf("GET: %v, %v", old, err)
	}
	token = olderLock(t, c, key, 10)
	return token, foreign.Get(ctx, key).Val()
}

// olderLoses is the foreign client's GETSET, which tells it that it has lost.
func olderLoses(t *testing.T, foreign *redis.Client, key, value string) {
	t.Helper()
	if old, err := foreign.GetSet(t.Context(), key, time.Now().Unix()+6).Result(); err != nil ||
		old != value {
		t.Fatalf("GETSET: %q, %v, want the winner's %q", old, err, value)
	}
}

func (b *olderBed) testLosingGetsetVia(t *testing.T, unit, via string) {
	ctx, c, foreign, other := t.Context(), b.client(t, unit), b.client(t, via), b.client(t, unit)
	key := "getset:" + unit + ":" + via

	// The timestamp is repaired. The proxy checks several
	// times within 80 ms; the rest is for a busy machine.
	for _, delay := range []time.Duration{0, 20 * time.Millisecond, 40 * time.Millisecond} {
		token, value := olderRace(t, foreign, c, key)
		time.Sleep(delay)
		olderLoses(t, foreign, key, value)
		lost := time.Now()
		if got := other.Do(ctx, "LOCK", key, 5).Err(); got != redis.Nil {
			t.Errorf("another LOCK: %v", got)
		}
		for foreign.Get(ctx, key).Val() != value && time.Since(lost) < time.Second {
			time.Sleep(time.Millisecond)
		}
		after := time.Since(lost)
		t.Logf("a GETSET %v after the takeover was repaired after %v", delay, after)
		if after > 250*time.Millisecond {
			t.Errorf("repaired after %v", after)
		}
		if ttl := foreign.PTTL(ctx, key).Val(); ttl <= 9*time.Second {
			t.Errorf("TTL after the repair: %v", ttl)
		}
		if got := other.Do(ctx, "LOCK", key, 5).Err(); got != redis.Nil {
			t.Errorf("another LOCK after the repair: %v", got)
		}
		if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
			t.Errorf("UNLOCK: %v", got)
		}
		if n := foreign.Exists(ctx, key).Val(); n != 0 {
			t.Error("the key is still there")
		}
	}

	// Released before the repair.
	for range 20 {
		token, value := olderRace(t, foreign, c, key)
		olderLoses(t, foreign, key, value)
		if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
			t.Fatalf("UNLOCK right after the GETSET: %v", got)
		}
		token = olderLock(t, other, key, 5)
		if got := other.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
			t.Fatalf("UNLOCK of the next lock: %v", got)
		}
	}
}

// testLateGetset: the loser is so slow that the lock it lost has been released, and the next LOCK
// has taken a free key. There must be no second holder at once; at worst the key is refused to all
// until the loser's timestamp has expired.
func (b *olderBed) testLateGetset(t *testing.T, unit string) {
	ctx, c, foreign, other := t.Context(), b.client(t, unit), b.client(t, "direct"),
		b.client(t, unit)
	key := "late:" + unit
	token, _ := olderRace(t, foreign, c, key)
	if got := c.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
		t.Fatalf("UNLOCK: %v", got)
	}
	token = olderLock(t, c, key, 10)
	olderLoses(t, foreign, key, foreign.Get(ctx, key).Val())
	if got := other.Do(ctx, "LOCK", key, 5).Err(); got != redis.Nil {
		t.Errorf("another LOCK: %v", got)
	}
	switch got := c.Do(ctx, "UNLOCK", key, token).Val(); got {
	case int64(1):
		olderLock(t, other, key, 5)
	default:
		t.Errorf("UNLOCK: %v", got)
	}
	olderDelete(t, foreign, key)
}
