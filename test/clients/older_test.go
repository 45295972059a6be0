//go:build clients

package clients_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/testredis"
)

// An olderProgram is a program of examples/older, with options that suit a test.
type olderProgram struct {
	name    string
	run     []string      // {bin} is the directory of the Go programs
	unit    string        // of its timestamps: s or ms
	pause   int           // ms between its rounds
	lasts   time.Duration // how far in the future its timestamps can be
	noFree  bool          // its release frees nothing
	viaUnit string        // the unit of the proxy that it uses, if not the run's
}

var (
	olderL1 = olderProgram{name: "L1", run: []string{"bash", "l1/l1.sh"}, unit: "s", pause: 20,
		lasts: 4 * time.Second}
	olderL2 = olderProgram{name: "L2", run: []string{"/usr/bin/python3", "l2/l2.py"},
		unit: "s", pause: 20, lasts: 4 * time.Second}
	olderL3 = olderProgram{name: "L3", run: []string{"{bin}/l3"}, unit: "ms", pause: 20,
		lasts: 3 * time.Second}
	olderL4 = olderProgram{name: "L4", run: []string{"/usr/bin/php", "l4/l4.php"}, unit: "s",
		pause: 20, lasts: 4 * time.Second, noFree: true}
	olderL4Fixed = olderProgram{name: "L4 fixed", run: []string{"/usr/bin/php", "l4/l4.php",
		"--fixed"}, unit: "s", pause: 20, lasts: 4 * time.Second}
	olderL5 = olderProgram{name: "L5", run: []string{"{bin}/l5"}, unit: "ms", pause: 20,
		lasts: 3 * time.Second}
	olderL3InS = olderProgram{name: "L3 in s", run: []string{"{bin}/l3", "--unit", "s"},
		unit: "s", pause: 20, lasts: 3 * time.Second}
	olderL5InS = olderProgram{name: "L5 in s", run: []string{"{bin}/l5", "--unit", "s"},
		unit: "s", pause: 20, lasts: 3 * time.Second}

	olderPublished = []olderProgram{olderL1, olderL2, olderL3, olderL4, olderL4Fixed, olderL5}
)

// olderWaits says that LOCK users queue; with OLDER_POLL=1 they poll instead.
var olderWaits = os.Getenv("OLDER_POLL") != "1"

var olderPoller = olderProgram{name: "LOCK", run: []string{"{bin}/lockuser"}, pause: 20}

func olderLockUser() olderProgram {
	if olderWaits {
		// Without a pause the queue is never empty: with hand-overs
		// no other client would ever find the lock free.
		return olderProgram{name: "LOCK WAIT", run: []string{"{bin}/lockuser", "--wait"}}
	}
	return olderPoller
}

// with returns the program with another pause between its rounds.
func (p olderProgram) with(pause time.Duration) olderProgram {
	p.pause = int(pause.Milliseconds())
	return p
}

// at returns the program with the proxy of another unit.
func (p olderProgram) at(unit string) olderProgram {
	p.name += " at " + unit
	p.viaUnit = unit
	return p
}

// olderReport is what every program prints.
type olderReport struct {
	Acquisitions   int
	Failures       int
	Violations     int
	SameViolations int `json:"same_violations"`
	Unreleased     int
	NilErrors      int   `json:"nil_errors"`
	LongestWaitMS  int64 `json:"longest_wait_ms"`
}

// olderBed is one Redis, a proxy for each unit of the timestamps, and the built programs.
type olderBed struct {
	bin  string
	port map[string]string // "direct", "s", "ms"
}

func newOlderBed(t *testing.T) *olderBed {
	bed := &olderBed{bin: t.TempDir(), port: map[string]string{}}
	build := exec.Command("go", "build", "-o", bed.bin+"/", "lockproxy/cmd/lockproxy",
		"lockproxy/examples/older/l3", "lockproxy/examples/older/l5",
		"lockproxy/examples/older/lockuser")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	for _, name := range []string{"direct", "s", "ms"} {
		bed.port[name] = strconv.Itoa(testredis.FreePort(t))
	}
	startForClients(t, bed.port["direct"], "redis-server", "--port", bed.port["direct"], "--bind",
		"127.0.0.1", "--save", "", "--dir", t.TempDir())
	for _, unit := range []string{"s", "ms"} {
		startForClients(t, bed.port[unit], filepath.Join(bed.bin, "lockproxy"), "--listen",
			"127.0.0.1:"+bed.port[unit],
			"--upstream", "redis://127.0.0.1:"+bed.port["direct"], "--timestamp-unit", unit)
	}
	return bed
}

func (b *olderBed) client(t *testing.T, via string) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + b.port[via], Protocol: 2,
		MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// run runs programs at the same time on one key, through via, and checks what must always be true:
// they end, no two hold the lock at once, and no count is lost.
func (b *olderBed) run(t *testing.T, via, key string, d time.Duration, programs []olderProgram,
	options ...string) []olderReport {
	t.Helper()
	reports := make([]olderReport, len(programs))
	var wg sync.WaitGroup
	for i, p := range programs {
		wg.Go(func() { reports[i] = b.program(t, p, via, key, d, options...) })
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}

	acquisitions := 0
	for i, r := range reports {
		t.Logf(
			"%-4s %-16s %4d acquisitions, %5d failed tries, %d violations, %d unreleased, %2d nil "+
				"replies, longest wait %5d ms",
			via, programs[i].name, r.Acquisitions, r.Failures, r.Violations, r.Unreleased,
			r.NilErrors, r.LongestWaitMS)
		acquisitions += r.Acquisitions
		if r.Violations+r.SameViolations > 0 {
			t.Errorf("%s held the lock with another %d times, %d of them of its kind",
				programs[i].name, r.Violations, r.SameViolations)
		}
	}
	c := b.client(t, "direct")
	if n, _ := c.Get(t.Context(), key+":counter").Int(); n != acquisitions {
		t.Errorf("the counter is %d after %d acquisitions", n, acquisitions)
	}
	olderDelete(t, c, key)
	return reports
}

func (b *olderBed) program(t *testing.T, p olderProgram, via, key string, d time.Duration,
	options ...string) (report olderReport) {
	if p.viaUnit != "" {
		via = p.viaUnit
	}
	name := strings.ReplaceAll(p.run[0], "{bin}", b.bin)
	args := slices.Clone(p.run[1:])
	// The arguments come after scripts and before options.
	at := 0
	if len(args) > 0 && !strings.HasPrefix(args[0], "--") {
		at = 1
	}
	args = slices.Insert(args, at, "127.0.0.1", b.port[via], key,
		strconv.FormatFloat(d.Seconds(), 'f', -1, 64))
	if strings.HasSuffix(name, "bash") {
		args[at+3] = strconv.Itoa(max(1, int(d.Seconds()))) // whole seconds only
	}
	args = append(append(args, "--pause", strconv.Itoa(p.pause)), options...)

	ctx, cancel := context.WithTimeout(t.Context(), d+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join("..", "..", "examples", "older")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	// The shell script starts others: in one process group all of them can be ended.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v\n%s%s", p.name, err, stdout.String(), stderr.String())
	} else if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || stderr.Len() > 0 {
		t.Errorf("%s: %v\n%s%s", p.name, err, stdout.String(), stderr.String())
	}
	return report
}

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
	poller := olderPoller.with(rest)
	user := poller
	if olderWaits {
		user = olderLockUser()
	}
	l4 := olderL4.with(d * 8 / 10)

	seconds := []olderProgram{user, user, poller, poller, olderL1.with(2 * rest),
		olderL2.with(rest), olderL3InS, l4, olderL4Fixed.with(rest), olderL5InS.with(rest)}
	t.Run("seconds", func(t *testing.T) { b.testMixedOf(t, "s", d, seconds) })

	// LOCK reads either unit, so that proxies which write different ones exclude each other.
	units := []olderProgram{user, user, user.at("ms"), user.at("ms"), olderL1.with(2 * rest),
		olderL2.with(rest), l4, olderL4Fixed.with(rest), olderL5InS.with(rest)}
	t.Run("seconds, proxies of both units", func(t *testing.T) { b.testMixedOf(t, "s", d, units) })

	t.Run("ms", func(t *testing.T) {
		b.testMixedOf(t, "ms", d, []olderProgram{user, user, poller, poller, olderL3, olderL5,
			olderL5})
	})
}

func (b *olderBed) testMixedOf(t *testing.T, unit string, d time.Duration,
	programs []olderProgram) {
	reports := b.run(t, unit, fmt.Sprintf("mixed:%s:%d", unit, len(programs)), d, programs)
	olderNoneStarved(t, programs, reports)
}

func olderLock(t *testing.T, c *redis.Client, key string, seconds int) int64 {
	t.Helper()
	token, err := c.Do(t.Context(), "LOCK", key, seconds).Int64()
	if err != nil {
		t.Fatalf("LOCK %s: %v", key, err)
	}
	return token
}

// olderDelete deletes a lock and the programs' counts for it.
func olderDelete(t *testing.T, c *redis.Client, key string) {
	t.Helper()
	if err := c.Del(t.Context(), key, key+":counter", key+":inside").Err(); err != nil {
		t.Fatal(err)
	}
}

func olderTime(unit string, stamp int64) time.Time {
	if unit == "s" {
		return time.Unix(stamp, 0)
	}
	return time.UnixMilli(stamp)
}

func olderStamp(unit string, at time.Time) int64 {
	if unit == "s" {
		return at.Unix()
	}
	return at.UnixMilli()
}
