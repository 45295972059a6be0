package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestClusterTable(t *testing.T) {
	run := func(rate float64, proxyCPU time.Duration) *clustered {
		return &clustered{rate: rate, nodesCPU: 10 * time.Microsecond, proxyCPU: proxyCPU}
	}
	j := clusterPart(true).jobs[0].(*cluster)
	j.results = runs[clustered]{{run(100, 0), run(200, 0), run(300, 0)},
		{run(60, 5*time.Microsecond), run(100, 5*time.Microsecond), nil},
		{run(50, 20*time.Microsecond)},
		{run(100, 0)}, {nil}, {nil}}
	j.workloads = j.workloads[:2]
	got := j.sections()[0].markdown("")
	for _, want := range []string{
		"| SET, P=1 | direct | 200 (100–300) |  | 10.0 (10.0–10.0) |\n",
		"|  | lockproxy | 80 (60–100), 1 failed | 0.55 (0.50–0.60), 1 failed | 15.0 (15.0–15.0), " +
			"1 failed [5.0] |\n",
		"|  | twemproxy | 50 | 0.50 | 30.0 [20.0] |\n",
		"| GET, P=1 | direct | 100 |  | 10.0 |\n|  | lockproxy | failed | failed | failed |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestBetween(t *testing.T) {
	began := time.Now()
	run := func(used usage) clusterSample {
		used.cpu = 2 * time.Second
		return clusterSample{at: began.Add(500 * time.Millisecond), used: used,
			proxyCPU: time.Second}
	}
	get, set := workload{"GET", 50, 16, 64}, workload{"SET", 50, 16, 64}
	for _, c := range []struct {
		name string
		load workload
		used usage
		ok   bool
	}{
		{"get", get, usage{gets: 10000}, true},
		{"set", set, usage{sets: 10000}, true},
		{"few keys without a value", get, usage{gets: 10000, misses: 100}, true},
		{"many keys without a value", get, usage{gets: 10000, misses: 101}, false},
		{"answered by the proxy", set, usage{gets: 10000}, false},
	} {
		got, err := between(clusterSample{at: began}, run(c.used), &target{name: viaLockproxy},
			c.load)
		switch {
		case (err == nil) != c.ok:
			t.Errorf("%s: %v", c.name, err)
		case c.ok && *got != clustered{rate: 20000, nodesCPU: 200 * time.Microsecond,
			proxyCPU: 100 * time.Microsecond}:
			t.Errorf("%s: %+v", c.name, *got)
		}
	}
	if got, err := between(clusterSample{at: began}, run(usage{gets: 10000}),
		&target{name: viaDirect}, get); err != nil || got.proxyCPU != 0 {
		t.Errorf("directly: %+v, %v", got, err)
	}
}

// A real cluster, and as the proxies in front of it a Redis that answers everything by itself.
func TestBenchmarkOfCluster(t *testing.T) {
	b, impostor := liveBench(t)
	t.Cleanup(b.masters.close)
	if err := b.startCluster(masterCount, 0); err != nil {
		t.Fatal(err)
	}
	direct := &target{viaDirect, b.masters.nodes[0]}
	b.targets = []*target{direct}
	if err := b.fillCluster(); err != nil {
		t.Fatal(err)
	}
	for i, node := range b.masters.monitors {
		if size, err := node.do("DBSIZE"); err != nil || size.n < 0.9*clusterKeys/masterCount ||
			size.n > clusterKeys/masterCount {
			t.Errorf("master %d has %d keys: %v", i, size.n, err)
		}
	}
	if err := b.startShards(masterCount); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.shards.close)
	twemproxy := &target{viaTwemproxy, impostor.server}
	b.targets = append(b.targets, impostor, twemproxy)
	j := clusterPart(true).jobs[0].(*cluster)
	j.workloads = j.workloads[2:] // P=16
	j.filled, j.time = true, 100*time.Millisecond
	for i := range j.cases() {
		if err := j.measure(b, i); err != nil {
			t.Fatal(err)
		}
	}
	for w, load := range j.workloads {
		w *= len(clusterWays)
		if rate := j.results.spread(w, clusterRate); rate.Rounds != 1 || rate.Median < 100 {
			t.Errorf("%v, directly: %+v", load, rate)
		}
		for i := 1; i < len(clusterWays); i++ {
			if rate := j.results.spread(w+i, clusterRate); rate.Failed != 1 {
				t.Errorf("%v, by an impostor: %+v", load, rate)
			}
		}
	}
	if len(b.failures) != 2*len(j.workloads) || slices.ContainsFunc(b.failures,
		func(f string) bool {
			return !strings.HasSuffix(f, ": the masters have seen no request")
		}) {
		t.Errorf("noted as %q", b.failures)
	}
}
