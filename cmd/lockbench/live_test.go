package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// liveBench is a real Redis, and as its "proxy" a second Redis: one that answers everything by
// itself.
func liveBench(t *testing.T) (b *bench, impostor *target) {
	t.Helper()
	log, err := os.Create(t.TempDir() + "/progress")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { log.Close() })
	l := &lab{ctx: t.Context(), progress: newProgress(log), dir: t.TempDir(),
		files: raiseFileLimit()}
	if b, err = l.open(needs{targets: []string{viaDirect}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	second, err := b.startRedis()
	if err != nil {
		t.Fatal(err)
	}
	impostor = &target{viaLockproxy, second}
	b.targets = append(b.targets, impostor)
	return b, impostor
}

func TestBenchmarkOfRedis(t *testing.T) {
	b, _ := liveBench(t)
	for _, w := range []workload{{"GET", 3, 4, 100}, {"SET", 3, 4, 100}} {
		n, err := b.calibrate(w, 50*time.Millisecond)
		if err != nil || n < 48 {
			t.Fatalf("%v: calibrated to %d requests: %v", w, n, err)
		}
		r, err := b.benchmark(b.targets[0], w, n)
		if err != nil || r.rate < 100 {
			t.Fatalf("%v: %+v: %v", w, r, err)
		}
		if r.client <= 0 || r.redis <= 0 || r.proxy != 0 {
			t.Errorf("%v: %+v µs", w, r)
		}
	}
}

func TestRunThatRedisHasNotSeenFails(t *testing.T) {
	b, impostor := liveBench(t)
	if r, err := b.benchmark(impostor, workload{"SET", 2, 1, 10}, 1000); err == nil ||
		!strings.Contains(err.Error(), "Redis has seen 0") {
		t.Errorf("%+v: %v", r, err)
	}
}

func TestFailedRunIsNotedAndItsServerRestarted(t *testing.T) {
	b, impostor := liveBench(t)
	impostor.server.cmd.Process.Kill()
	impostor.server.cmd.Wait()
	j := &relay{workloads: []workload{{"GET", 2, 1, 10}}, requests: []int{100},
		results: make(runs[ran], len(allWays))}
	if err := j.measure(b, 1); err != nil {
		t.Fatalf("one dead proxy ends the report: %v", err)
	}
	if s := j.results.spread(1, relayRate); s.Failed != 1 || s.Rounds != 0 {
		t.Errorf("counted as %+v", s)
	}
	if len(b.failures) != 1 || !strings.HasPrefix(b.failures[0],
		"lockproxy, GET, 2 clients, P=1, 10 B: not running: ") {
		t.Errorf("noted as %q", b.failures)
	}
	if err := impostor.server.serves(); err != nil {
		t.Errorf("the server was not started again: %v", err)
	}
}

// oneJob is a job that does what a test wants.
type oneJob func(b *bench) error

func (oneJob) title() string                   { return "One" }
func (oneJob) cases() []string                 { return []string{"case"} }
func (j oneJob) measure(b *bench, _ int) error { return j(b) }
func (oneJob) sections() []*section {
	return []*section{{title: "One",
		header: []string{""}}}
}
func (j oneJob) documents() []*document {
	return []*document{{name: "one", head: func(*lab) string { return "" },
		parts: []*part{{rounds: 2, jobs: []job{j}}}}}
}

func TestReportLeavesNothingBehind(t *testing.T) {
	broken := errors.New("it broke")
	for name, c := range map[string]struct {
		measure func(b *bench, cancel func()) error
		want    error
	}{
		"whole": {func(*bench, func()) error { return nil }, nil},
		"error": {func(*bench, func()) error { return broken }, broken},
		"interrupted": {func(b *bench, cancel func()) error { cancel(); return b.ctx.Err() },
			context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var redis *server
			job := oneJob(func(b *bench) error {
				redis = b.servers.running[0]
				return c.measure(b, cancel)
			})
			if err := report(ctx, &flags{Proxy: "live_test.go"}, job.documents(), io.Discard,
				newProgress(os.Stderr)); !errors.Is(err, c.want) {
				t.Errorf("ended with %v", err)
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if err := redis.serves(); err == nil {
				t.Error("its Redis still runs")
			}
		})
	}
}

func TestDriveNew(t *testing.T) {
	b, _ := liveBench(t)
	plan, err := b.getPlan()
	if err != nil {
		t.Fatal(err)
	}
	plan.Time = 100 * time.Millisecond
	d, err := b.driveNew(b.targets[0], 5, plan)
	if err != nil {
		t.Fatal(err)
	}
	if d.rate < 100 || d.unanswered != 0 || d.proxyCPU != 0 || d.latencies.at(0.5) <= 0 ||
		d.latencies.at(0.5) > d.latencies.at(0.99) {
		t.Errorf("%v/s, p50 %v, p99 %v, %d unanswered, %v of a proxy's CPU", d.rate,
			d.latencies.at(0.5), d.latencies.at(0.99), d.unanswered, d.proxyCPU)
	}
}

// What other servers than the proxies use is not theirs.
func TestProxiesCPU(t *testing.T) {
	b, impostor := liveBench(t)
	plan, err := b.getPlan()
	if err != nil {
		t.Fatal(err)
	}
	plan.Time = time.Second // Redis has some of it even on a busy machine
	if _, err := b.driveNew(b.targets[0], 20, plan); err != nil {
		t.Fatal(err)
	}
	if used, err := b.proxiesCPU(); used != 0 || err != nil {
		t.Errorf("without proxies: %v, %v", used, err)
	}
	b.proxies = []string{b.redis}
	if used, err := b.proxiesCPU(); used < 2*tick || err != nil {
		t.Errorf("of one that has had work: %v, %v", used, err)
	}
	impostor.server.end()
	b.proxies = []string{impostor.server.addr}
	if _, err := b.proxiesCPU(); err == nil {
		t.Error("one that has ended has used something")
	}
}

func TestIdleClientsOfRedis(t *testing.T) {
	b, _ := liveBench(t)
	j := &idle{clients: 300, time: 500 * time.Millisecond,
		results: make(runs[idled], len(idleTargets))}
	if err := j.measure(b, 0); err != nil {
		t.Fatal(err)
	}
	r := j.results[0][0]
	if r == nil {
		t.Fatalf("failed: %v", b.failures)
	}
	if r.clients != 300 || r.memory < 1000 || r.memory > 1<<20 || r.without < 100 || r.among < 100 {
		t.Errorf("%+v", *r)
	}
}
