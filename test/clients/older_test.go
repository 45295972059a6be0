//go:build clients

package clients_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
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
	reports := b.run(t, via, key, d, []olderProgram{p, p})
	acquisitions, unreleased := 0, 0
	for _, r := range reports {
		acquisitions += r.Acquisitions
		unreleased += r.Unreleased
		if r.Acquisitions == 0 && !p.noFree {
			t.Error("one of two never got the lock")
		}
	}
	if acquisitions < 2 {
		t.Errorf("%d acquisitions", acquisitions)
	}
	if p.noFree && unreleased != acquisitions || !p.noFree && unreleased > 0 {
		t.Errorf("%d of %d acquisitions were not released", unreleased, acquisitions)
	}

	// A crash leaves this behind.
	b.program(t, p, via, key, time.Second, "--crash")
	c := b.client(t, "direct")
	left, err := strconv.ParseInt(c.Get(t.Context(), key).Val(), 10, 64)
	if remains := olderTime(p.unit, left).Sub(time.Now()); err != nil || remains < 0 ||
		remains > p.lasts {
		t.Errorf("left behind: %q, which expires in %v", c.Get(t.Context(), key).Val(), remains)
	}
	ttl := c.TTL(t.Context(), key).Val()
	if expires := ttl > 0; expires != strings.HasPrefix(p.name, "L4") {
		t.Errorf("TTL of the key left behind: %v", ttl)
	}
}

// testNextToLock: no two hold the lock at once, and no client starves. The timeouts are far longer
// than the work, so that no fault of a recipe is an excuse.
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
			via, programs := p.unit, []olderProgram{p.olderProgram, user, user}
			if via == "both" {
				// Two each: a client alone takes the lock again at once, as a foreign client would.
				via, programs = "s", append(programs, user.at("ms"), user.at("ms"))
			}
			reports := b.run(t, via, "next:"+p.name+":"+p.unit, d, programs)
			olderNoneStarved(t, programs, reports)
			for i, r := range reports {
				if r.Unreleased > 0 && !p.noFree {
					t.Errorf("%s could not release %d times", programs[i].name, r.Unreleased)
				}
			}
		})
	}
}

func olderNoneStarved(t *testing.T, programs []olderProgram, reports []olderReport) {
	t.Helper()
	for i, r := range reports {
		few := 3
		if programs[i].noFree {
			few = 1
		}
		if r.Acquisitions < few {
			t.Errorf("%s got the lock %d times only", programs[i].name, r.Acquisitions)
		}
	}
}

// testForeignUnit: to a recipe that counts in ms, a timestamp in seconds has long expired. This is
// why a proxy writes the unit of the foreign clients; ms are safe with all of them.
func (b *olderBed) testForeignUnit(t *testing.T) {
	for _, p := range []olderProgram{olderL3, olderL5} {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			key, direct := "foreign:"+p.name, b.client(t, "direct")
			direct.Set(t.Context(), key, time.Now().Unix()+60, 0)
			if r := b.program(t, p, "direct", key, time.Second); r.Acquisitions == 0 {
				t.Errorf("%s respects seconds: say so in examples/older/README.md", p.name)
			}
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
	reports := b.run(t, unit, fmt.Sprintf("mixed:%s:%d", unit, len(programs)), d, programs)
	olderNoneStarved(t, programs, reports)
}
