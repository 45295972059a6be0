//go:build clients

package clients_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testwait"
)

func TestOlder(t *testing.T) {
	bed := newOlderBed(t)
	t.Run("alone", bed.testAlone)
	t.Run("next to LOCK", bed.testNextToLock)
	t.Run("takeover", bed.testTakeover)
	t.Run("losing GETSET", bed.testLosingGetset)
	t.Run("foreign unit", bed.testForeignUnit)
	t.Run("mixed", bed.testMixed)
}

// testAlone: a recipe behaves the same through the proxy as directly.
func (b *olderBed) testAlone(t *testing.T) {
	for _, p := range olderPublished {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			d := 2 * time.Second
			if p.noFree {
				d = 7 * time.Second // each acquisition blocks the key for up to 4 s
			}
			for _, via := range []string{"direct", "s"} {
				t.Run(via, func(t *testing.T) {
					t.Parallel()
					b.testAloneVia(t, p, via, d)
				})
			}
		})
	}
}

func (b *olderBed) testAloneVia(t *testing.T, p olderProgram, via string, d time.Duration) {
	key := "alone:" + p.name + ":" + via
	acquisitions, unreleased := 0, 0
	b.runUntil(t, via, key, d, []olderProgram{p.lasting(), p.lasting()},
		func(reports []olderReport) string {
			acquisitions, unreleased = 0, 0
			for _, r := range reports {
				acquisitions += r.Acquisitions
				unreleased += r.Unreleased
				if r.Acquisitions == 0 && !p.noFree {
					return "one of two never got the lock"
				}
			}
			if acquisitions < 2 {
				return fmt.Sprintf("%d acquisitions", acquisitions)
			}
			return ""
		})
	if p.noFree && unreleased != acquisitions || !p.noFree && unreleased > 0 {
		t.Errorf("%d of %d acquisitions were not released", unreleased, acquisitions)
	}

	// A crash leaves this behind: for no longer than it lasts.
	c := b.client(t, "direct")
	testwait.Until(t, "a lock that a crash leaves behind", func() bool {
		began := olderStamp(p.unit, time.Now())
		b.program(t, p, via, key, time.Second, "--crash")
		ended := olderStamp(p.unit, time.Now())
		var left *redis.StringCmd
		var ttl *redis.DurationCmd
		c.TxPipelined(t.Context(), func(both redis.Pipeliner) error {
			left, ttl = both.Get(t.Context(), key), both.TTL(t.Context(), key)
			return nil
		})
		if left.Err() == redis.Nil {
			return false // it has expired, or there was no time for a try
		}
		if stamp, err := left.Int64(); err != nil || stamp < began+p.lasts ||
			stamp > ended+p.lasts {
			t.Errorf("left behind: %q, between %d and %d, for %d", left.Val(), began, ended, p.lasts)
		}
		if expires := ttl.Val() > 0; expires != strings.HasPrefix(p.name, "L4") {
			t.Errorf("TTL of the key left behind: %v", ttl.Val())
		}
		return true
	})
}

// testNextToLock: no two hold the lock at once, and no client starves. The timeouts are far longer
// than the work, so that no fault of a recipe is an excuse; L2's and L4's are fixed, 3 s.
func (b *olderBed) testNextToLock(t *testing.T) {
	type pair struct {
		olderProgram
		unit string // of the proxy, or "both" for LOCK users at each and the older recipe at one
	}
	pairs := []pair{
		{olderL1, "s"}, {olderL1, "ms"}, {olderL2, "s"}, {olderL2, "ms"}, {olderL4Fixed, "s"},
		{olderL4Fixed, "ms"},
		{olderL3, "ms"}, {olderL3InS, "s"}, {olderL5, "ms"}, {olderL5InS, "s"}, {olderL4, "s"},
		{olderL4, "ms"},
	}
	if olderWaits { // a queue in each proxy, of which only one sees the foreign client
		pairs = append(pairs, pair{olderL1, "both"}, pair{olderL2, "both"},
			pair{olderL3InS, "both"}, pair{olderL4Fixed, "both"}, pair{olderL5InS, "both"})
	}
	for _, p := range pairs {
		t.Run(p.name+" at "+p.unit, func(t *testing.T) {
			t.Parallel()
			d := 5 * time.Second
			if p.noFree {
				d, p.pause = 9*time.Second, 6000 // so that the others have 2 s
			}
			user := olderLockUser()
			via, programs := p.unit, []olderProgram{p.lasting(), user, user}
			if via == "both" {
				// Two each: a client alone takes the lock again at once, as a foreign client would.
				via, programs = "s", append(programs, user.at("ms"), user.at("ms"))
			}
			reports := b.runUntil(t, via, "next:"+p.name+":"+p.unit, d, programs,
				olderStarved(programs))
			for i, r := range reports {
				if r.Unreleased > 0 && !p.noFree {
					t.Errorf("%s could not release %d times", programs[i].name, r.Unreleased)
				}
			}
		})
	}
}

// olderStarved says who of these programs has had the lock too seldom.
func olderStarved(programs []olderProgram) func([]olderReport) string {
	return func(reports []olderReport) string {
		for i, r := range reports {
			few := 3
			if programs[i].noFree {
				few = 1
			}
			if r.Acquisitions < few {
				return fmt.Sprintf("%s got the lock %d times only", programs[i].name,
					r.Acquisitions)
			}
		}
		return ""
	}
}

// testForeignUnit: to a recipe that counts in ms, a timestamp in seconds has long expired. This is
// why a proxy writes the unit of the foreign clients; ms are safe with all of them.
func (b *olderBed) testForeignUnit(t *testing.T) {
	for _, p := range []olderProgram{olderL3, olderL5} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			key, direct := "foreign:"+p.name, b.client(t, "direct")
			testwait.Until(t, "it finds a time to try", func() bool {
				direct.Set(t.Context(), key, time.Now().Unix()+600, 0)
				r := b.program(t, p, "direct", key, time.Second)
				if r.Failures > 0 {
					t.Errorf("%s respects seconds: say so in examples/older/README.md", p.name)
				}
				return r.Acquisitions > 0
			})
		})
	}
}

// testMixed: all on one key.
func (b *olderBed) testMixed(t *testing.T) {
	d := 10 * time.Second
	if s := os.Getenv("OLDER_SECONDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 10 {
			t.Fatalf("OLDER_SECONDS is %q, not a number from 10", s)
		}
		d = time.Duration(n) * time.Second
	}
	// L3 polls only five times a second, and L4 leaves the lock blocked for up to 4 s: it needs a
	// key that is free now and then.
	const rest = 100 * time.Millisecond
	// LOCK without WAIT is in it only if nobody waits by LOCK: it overtakes no waiter.
	user := olderPoller.with(rest)
	if olderWaits {
		user = olderLockUser()
	}
	l4 := olderL4.with(d * 8 / 10)

	seconds := []olderProgram{user, user, olderL1.with(2 * rest), olderL2.with(rest), olderL3InS,
		l4, olderL4Fixed.with(rest), olderL5InS.with(rest)}
	t.Run("seconds", func(t *testing.T) { b.testMixedOf(t, "s", d, seconds) })

	// LOCK reads either unit, so that proxies which write different ones exclude each other.
	units := []olderProgram{user, user, user.at("ms"), user.at("ms"), olderL1.with(2 * rest),
		olderL2.with(rest), l4, olderL4Fixed.with(rest), olderL5InS.with(rest)}
	t.Run("seconds, proxies of both units", func(t *testing.T) { b.testMixedOf(t, "s", d, units) })

	t.Run("ms", func(t *testing.T) {
		b.testMixedOf(t, "ms", d, []olderProgram{user, user, olderL3, olderL5, olderL5})
	})
}

func (b *olderBed) testMixedOf(t *testing.T, unit string, d time.Duration,
	programs []olderProgram) {
	b.runUntil(t, unit, fmt.Sprintf("mixed:%s:%d", unit, len(programs)), d, programs,
		olderStarved(programs))
}
