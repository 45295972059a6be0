package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// live is a real Redis, and as its "HAProxy" a second Redis: one that answers everything by itself.
func live(t *testing.T, n needs) *bench {
	t.Helper()
	l := &lab{ctx: t.Context(), log: io.Discard, dir: t.TempDir(), files: raiseFileLimit()}
	b, err := l.open(n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.close)
	_, monitor, err := b.startRedis(viaHAProxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(monitor.close)
	return b
}

func TestBenchmarkOfRedis(t *testing.T) {
	b := live(t, needs{})
	for _, w := range []workload{{"GET", 3, 4, 100}, {"SET", 3, 4, 100}} {
		n, err := b.calibrate(w, 50*time.Millisecond)
		if err != nil || n < 48 {
			t.Fatalf("%v: calibrated to %d requests: %v", w, n, err)
		}
		f, err := b.benchmark(viaDirect, w, n)
		if err != nil || f["requests/s"] <= 0 || f["client CPU"] <= 0 ||
			f["p99 ms"] < f["p50 ms"] {
			t.Errorf("%v: %v: %v", w, f, err)
		}
		if _, err := b.benchmark(viaHAProxy, w, n); err == nil ||
			!strings.Contains(err.Error(), "Redis has seen 0") {
			t.Errorf("%v, answered by the proxy: %v", w, err)
		}
	}
}

func TestBenchmarkOfCluster(t *testing.T) {
	b := live(t, needs{masters: masterCount})
	b.startShards(t)
	w := workload{"GET", 20, 16, usualSize}
	for _, way := range []string{viaDirect, viaTwemproxy} {
		f, err := b.benchmarkCluster(way, w, 100*time.Millisecond)
		for errors.Is(err, errUnseen) { // the machine stood still
			f, err = b.benchmarkCluster(way, w, 100*time.Millisecond)
		}
		if err != nil || f["requests/s"] <= 0 {
			t.Errorf("%s: %v: %v", way, f, err)
		}
	}
	b.shards = nil
	if _, err := b.benchmarkCluster(viaTwemproxy, w, 0); !errors.Is(err, errUnseen) {
		t.Errorf("what the masters have not seen counts: %v", err)
	}
}

// startShards lets a Redis of its own stand for twemproxy and what is behind it.
func (b *bench) startShards(t *testing.T) {
	t.Helper()
	_, shard, err := b.startRedis(viaTwemproxy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shard.close)
	b.shards = []*client{shard}
}

func TestVisits(t *testing.T) {
	b := live(t, needs{tls: true})
	for kind, name := range visitKinds {
		f, err := b.visits(viaDirect, visitKind(kind), 2, 100*time.Millisecond)
		if err != nil || f["visits/s"] <= 0 || f["connections"] < 1 {
			t.Errorf("%s: %v: %v", name, f, err)
		}
	}
	if _, err := b.visits(viaHAProxy, noLogin, 2, 100*time.Millisecond); err == nil {
		t.Error("what Redis has not seen counts")
	}
}

func TestIdleClientsOfRedis(t *testing.T) {
	b := live(t, needs{})
	f, err := b.idle(viaDirect, 300)
	if err != nil || f["KB"] < 1 || f["KB"] > 1024 || f["among"] <= 0 {
		t.Errorf("%v: %v", f, err)
	}
}

// A lock that two can have at once shows.
func TestContest(t *testing.T) {
	b := live(t, needs{})
	b.ways["real"] = b.ways[viaDirect]
	f, err := setLocks("", "real", time.Millisecond).run(b, 5, true, 200*time.Millisecond)
	if err != nil || f["turns"] < 5 || f["violations"] != 0 || f["stalled"] != 0 {
		t.Errorf("one lock: %v: %v", f, err)
	}
	broken := contender{open: func(_ *field, n int, _ func(int) string) (list []locker, _ error) {
		for range n {
			list = append(list, noLock{})
		}
		return list, nil
	}}
	for f["violations"] == 0 { // two must meet, which takes as long as it takes
		if f, err = broken.run(b, 20, true, 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
}

type noLock struct{}

func (noLock) acquire() error { return nil }
func (noLock) release() error { return nil }

// A lockproxy gives every waiter its lock, however it is freed.
func TestWaiting(t *testing.T) {
	b := live(t, needs{fresh: true})
	if err := b.findProxies(); err != nil {
		t.Fatal(err)
	}
	w := waiting{proxy: b.proxies[0], clients: 12, locks: 12, quiet: 100 * time.Millisecond,
		sample: 4}
	f, err := w.measure(b)
	if err != nil {
		t.Fatal(err)
	}
	for _, how := range freedHow {
		if f[how+" p99"] <= 0 {
			t.Errorf("%s: %v", how, f)
		}
	}
	w.locks = 2
	if f, err = w.measure(b); err != nil || f["all served, s"] <= 0 {
		t.Errorf("handed through: %v: %v", f, err)
	}
}

func TestReportLeavesNothingBehind(t *testing.T) {
	broken := errors.New("it broke")
	for name, c := range map[string]struct {
		measure func(cancel func()) error
		want    string
	}{
		"whole":       {func(func()) error { return nil }, ""},
		"failed runs": {func(func()) error { return broken }, "2 runs failed"},
		"interrupted": {func(cancel func()) error { cancel(); return broken }, "context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var redis *server
			s := &suite{name: "one", rounds: 2, columns: []column{{"figure", "%.0f", false}}}
			s.cases = func(*lab) []benchCase {
				return []benchCase{{"case", viaDirect, func(b *bench) (figures, error) {
					redis = b.running[0]
					return figures{"figure": 42}, c.measure(cancel)
				}}}
			}
			file, impostor := filepath.Join(t.TempDir(), "report.md"),
				filepath.Join(t.TempDir(), "lockproxy") // --listen HOST:PORT …
			if err := os.WriteFile(impostor, []byte("#!/bin/sh\n"+
				`exec redis-server --port "${2##*:}" --save ""`+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			err := report(ctx, &flags{Proxy: []proxyBinary{{viaLockproxy, impostor}}, Output: file},
				[]*suite{s}, io.Discard, io.Discard)
			if c.want == "" && err != nil || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("ended with %v", err)
			}
			written, _ := os.ReadFile(file)
			figures, _ := os.ReadFile(strings.TrimSuffix(file, ".md") + ".csv")
			if c.want == "" && (!strings.Contains(string(written), "| 42 (42–42) |") ||
				!strings.Contains(string(figures), "one,\"case\",\"direct\",2,\"figure\",42\n")) {
				t.Errorf("wrote %q and %q", written, figures)
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
			if redis == nil || redis.serves() == nil {
				t.Error("its Redis still runs")
			}
		})
	}
}
