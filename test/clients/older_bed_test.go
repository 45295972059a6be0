//go:build clients

package clients_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/test/testredis"
)

// An olderProgram is a program of examples/older, with options that suit a test.
type olderProgram struct {
	name    string
	run     []string // {bin} is the directory of the Go programs
	unit    string   // of its timestamps: s or ms
	pause   int      // ms between its rounds
	lasts   int64    // how far in the future its timestamps are, in that unit
	long    string   // ten minutes, as it takes them for its timeout; "" if that is fixed
	noFree  bool     // its release frees nothing
	viaUnit string   // the unit of the proxy that it uses, if not the run's
}

var (
	olderL1 = olderProgram{name: "L1", run: []string{"bash", "l1/l1.sh"}, unit: "s", pause: 20,
		lasts: 4, long: "600"}
	olderL2 = olderProgram{name: "L2", run: []string{"/usr/bin/python3", "l2/l2.py"},
		unit: "s", pause: 20, lasts: 4}
	olderL3 = olderProgram{name: "L3", run: []string{"{bin}/l3"}, unit: "ms", pause: 20,
		lasts: 3000, long: "600000"}
	olderL4 = olderProgram{name: "L4", run: []string{"/usr/bin/php", "l4/l4.php"}, unit: "s",
		pause: 20, lasts: 4, noFree: true}
	olderL4Fixed = olderProgram{name: "L4 fixed", run: []string{"/usr/bin/php", "l4/l4.php",
		"--fixed"}, unit: "s", pause: 20, lasts: 4}
	olderL5 = olderProgram{name: "L5", run: []string{"{bin}/l5"}, unit: "ms", pause: 20,
		lasts: 3000, long: "600000"}
	olderL3InS = olderProgram{name: "L3 in s", run: []string{"{bin}/l3", "--unit", "s"},
		unit: "s", pause: 20, lasts: 3, long: "600000"}
	olderL5InS = olderProgram{name: "L5 in s", run: []string{"{bin}/l5", "--unit", "s"},
		unit: "s", pause: 20, lasts: 3, long: "600000"}

	olderPublished = []olderProgram{olderL1, olderL2, olderL3, olderL4, olderL4Fixed, olderL5}
)

// olderWaits says that LOCK users queue; with OLDER_POLL=1 they poll instead.
var olderWaits = os.Getenv("OLDER_POLL") != "1"

var olderPoller = olderProgram{name: "LOCK", run: []string{"{bin}/lockuser", "--timeout", "600"},
	pause: 20}

func olderLockUser() olderProgram {
	if olderWaits {
		// Without a pause the queue is never empty: with hand-overs
		// no other client would ever find the lock free.
		return olderProgram{name: "LOCK WAIT", run: append(olderPoller.run, "--wait")}
	}
	return olderPoller
}

// with returns the program with another pause between its rounds.
func (p olderProgram) with(pause time.Duration) olderProgram {
	p.pause = int(pause.Milliseconds())
	return p
}

// lasting returns the program with locks that outlive any stop of the machine, if it lets one
// choose. Where locks expire it is not for use: what a fault of a takeover leaves blocks all others.
func (p olderProgram) lasting() olderProgram {
	if p.long != "" {
		p.run = append(slices.Clone(p.run), "--timeout", p.long)
	}
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
	c := redis.NewClient(testredis.Patient(&redis.Options{
		Addr: "127.0.0.1:" + b.port[via], Protocol: 2,
		MaxRetries: -1, DisableIdentity: true}))
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

// runUntil runs programs, and again for longer, until they have had what they must have: on a slow
// machine that takes longer.
func (b *olderBed) runUntil(t *testing.T, via, key string, d time.Duration,
	programs []olderProgram, lacks func([]olderReport) string) []olderReport {
	t.Helper()
	lack := ""
	for range 3 {
		reports := b.run(t, via, key, d, programs)
		if lack = lacks(reports); lack == "" {
			return reports
		}
		t.Logf("in %v %s", d, lack)
		d *= 3
	}
	t.Fatal(lack)
	return nil
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

	// It ends by its own clock, and the shell script starts others, which end as soon.
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = filepath.Join("..", "..", "examples", "older")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("%s: %v\n%s%s", p.name, err, stdout.String(), stderr.String())
	} else if err := json.Unmarshal(stdout.Bytes(), &report); err != nil || stderr.Len() > 0 {
		t.Errorf("%s: %v\n%s%s", p.name, err, stdout.String(), stderr.String())
	}
	return report
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

// olderNow is the time by the clock of Redis.
func olderNow(t *testing.T, c *redis.Client) time.Time {
	t.Helper()
	now, err := c.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return now
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
