//go:build clients

package clients_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testwait"
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

// olderRace is a lock that LOCK has taken over from an expired foreign client.
type olderRace struct {
	token int64
	value string    // what LOCK has written
	at    time.Time // before it was taken over, by the clock of Redis
}

// olderGrace is how long after a takeover the proxy repairs what a loser writes.
const olderGrace = 2 * time.Second

// olderRaces leaves an expired lock at key, shows it to a
// foreign client, and lets LOCK take it over.
func olderRaces(t *testing.T, foreign, c *redis.Client, key string) olderRace {
	t.Helper()
	ctx := t.Context()
	olderDelete(t, foreign, key)
	foreign.Set(ctx, key, time.Now().Unix()-10, 0)
	if got := foreign.Do(ctx, "SETNX", key, time.Now().Unix()+600).Val(); got != int64(0) {
		t.Fatalf("SETNX: %v", got)
	}
	if old, err := foreign.Get(ctx, key).Int64(); err != nil || old > time.Now().Unix() {
		t.Fatalf("GET: %v, %v", old, err)
	}
	at := olderNow(t, foreign)
	token := olderLock(t, c, key, 600)
	return olderRace{token, foreign.Get(ctx, key).Val(), at}
}

// over reports whether the grace period may be over.
func (r olderRace) over(t *testing.T, c *redis.Client) bool {
	t.Helper()
	return !olderNow(t, c).Before(r.at.Add(olderGrace))
}

// olderTries repeats what must succeed unless its grace period ends meanwhile, which it does when
// the machine stops: then try returns false.
func olderTries(t *testing.T, try func() bool) {
	t.Helper()
	for range 5 {
		if try() {
			return
		}
	}
	t.Error("the grace period always ends before")
}

// olderLoses is the foreign client's GETSET, which tells it that it has lost.
func olderLoses(t *testing.T, foreign *redis.Client, key, value string) {
	t.Helper()
	old, err := foreign.Do(t.Context(), "GETSET", key, time.Now().Unix()+600).Text()
	if err != nil || old != value {
		t.Fatalf("GETSET: %q, %v, want the winner's %q", old, err, value)
	}
}

// olderUnlocks releases a lock whose timestamp a loser has replaced. It returns false if the grace
// period may be over: the lock cannot be released then.
func olderUnlocks(t *testing.T, foreign, c *redis.Client, key string, race olderRace,
	token int64) bool {
	t.Helper()
	got := c.Do(t.Context(), "UNLOCK", key, token).Val()
	if got == int64(1) {
		return true
	}
	if !race.over(t, foreign) {
		t.Errorf("UNLOCK in the grace period: %v", got)
	}
	return false
}

func (b *olderBed) testLosingGetsetVia(t *testing.T, unit, via string) {
	ctx, c, foreign, other := t.Context(), b.client(t, unit), b.client(t, via), b.client(t, unit)
	key := "getset:" + unit + ":" + via

	// The timestamp is repaired, before whichever of the proxy's checks it is replaced.
	for _, delay := range []time.Duration{0, 20 * time.Millisecond, 40 * time.Millisecond} {
		olderTries(t, func() bool {
			race := olderRaces(t, foreign, c, key)
			testwait.Until(t, "the loser's turn", func() bool {
				return !olderNow(t, foreign).Before(race.at.Add(delay))
			})
			olderLoses(t, foreign, key, race.value)
			if got := other.Do(ctx, "LOCK", key, 600).Err(); got != redis.Nil {
				t.Errorf("another LOCK: %v", got)
			}
			repaired := false
			testwait.Until(t, "the repair, or the end of the grace period", func() bool {
				over := race.over(t, foreign)
				repaired = foreign.Get(ctx, key).Val() == race.value
				return repaired || over
			})
			if !repaired {
				return false
			}
			if ttl := foreign.PTTL(ctx, key).Val(); ttl <= 5*time.Minute {
				t.Errorf("TTL after the repair: %v", ttl)
			}
			if got := other.Do(ctx, "LOCK", key, 600).Err(); got != redis.Nil {
				t.Errorf("another LOCK after the repair: %v", got)
			}
			if got := c.Do(ctx, "UNLOCK", key, race.token).Val(); got != int64(1) {
				t.Errorf("UNLOCK: %v", got)
			}
			if n := foreign.Exists(ctx, key).Val(); n != 0 {
				t.Error("the key is still there")
			}
			return true
		})
	}

	// Released before the repair.
	for range 20 {
		olderTries(t, func() bool {
			race := olderRaces(t, foreign, c, key)
			olderLoses(t, foreign, key, race.value)
			if !olderUnlocks(t, foreign, c, key, race, race.token) {
				return false
			}
			token := olderLock(t, other, key, 600)
			if got := other.Do(ctx, "UNLOCK", key, token).Val(); got != int64(1) {
				t.Fatalf("UNLOCK of the next lock: %v", got)
			}
			return true
		})
	}
}

// testLateGetset: the loser is so slow that the lock it lost has been released, and the next LOCK
// has taken a free key. There must be no second holder at once; at worst the key is refused to all
// until the loser's timestamp has expired.
func (b *olderBed) testLateGetset(t *testing.T, unit string) {
	ctx, c, foreign, other := t.Context(), b.client(t, unit), b.client(t, "direct"),
		b.client(t, unit)
	key := "late:" + unit
	olderTries(t, func() bool {
		race := olderRaces(t, foreign, c, key)
		if got := c.Do(ctx, "UNLOCK", key, race.token).Val(); got != int64(1) {
			t.Fatalf("UNLOCK: %v", got)
		}
		token := olderLock(t, c, key, 600)
		olderLoses(t, foreign, key, foreign.Get(ctx, key).Val())
		if got := other.Do(ctx, "LOCK", key, 600).Err(); got != redis.Nil {
			t.Errorf("another LOCK: %v", got)
		}
		if !olderUnlocks(t, foreign, c, key, race, token) {
			return false
		}
		olderLock(t, other, key, 600)
		return true
	})
	olderDelete(t, foreign, key)
}
