package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"lockproxy/cmd/lockbench/stat"
)

// measuredRelay is a relay with results that are made up: directly 100, and ratios by round of the
// other ways.
func measuredRelay() *relay {
	j := relayPart(true).jobs[0].(*relay)
	for w := range j.workloads {
		direct := &ran{100, spent{5000, 0, 4000}}
		copy(j.results[j.run(w, 0):], runs[ran]{{direct, direct, direct},
			{{110, spent{8000, 3000, 1000}}, nil, {130, spent{4000, 3000, 1000}}},
			{{rate: 60}, {rate: 65}, {rate: 70}}, {nil, nil, nil}})
	}
	return j
}

func TestRelayTable(t *testing.T) {
	got := measuredRelay().sections()[0].markdown("bench")
	for _, want := range []string{
		"## Relay: requests in a pipeline\n",
		"![", "](bench-relay-pipelining.svg)\n",
		"|  | direct, requests/s | lockproxy | HAProxy | twemproxy |\n|---|---:|---:|---:|---:|\n",
		"| GET, P=1 | 100 (100–100) | 1.20 (1.10–1.30), 1 failed | 0.65 (0.60–0.70) | failed |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if alone := measuredRelay().sections()[0].markdown(""); strings.Contains(alone, "![") {
		t.Error("a figure in a report that is not in a file")
	}
}

// What is unused depends on how many cores there are.
func TestCoresTable(t *testing.T) {
	j := measuredRelay()
	got := j.sections()[len(aspects)].markdown("")
	unused := func(rate, used float64) string {
		return fmt.Sprintf("%.1f", float64(runtime.NumCPU())*1e6/rate-used)
	}
	want := fmt.Sprintf("| GET, P=1, 64 B | 5000.0 (5000.0–5000.0) | 4000.0 (4000.0–4000.0) | %s "+
		"(%[1]s–%[1]s) | 6000.0 (4000.0–8000.0), 1 failed | 3000.0 (3000.0–3000.0), 1 failed |",
		unused(100, 9000))
	if !strings.Contains(got, want) || !strings.Contains(got, "| 1.88 (1.25–2.50), 1 failed |\n") {
		t.Errorf("no %q in\n%s", want, got)
	}
	if strings.Contains(got, "NaN") || strings.Contains(got, "1000 clients") {
		t.Error(got)
	}
	if unused := (spent{1, 1, 1}).unused(1e9); unused != 0 {
		t.Errorf("less than nothing is unused: %v", unused)
	}
}

func TestCoresOfPairs(t *testing.T) {
	j := newPairs(50, time.Second)
	j.results[0] = []*outcome{{elapsed: time.Second, acquired: 1000, total: 1000,
		used: usage{cpu: 30 * time.Millisecond}, client: 20 * time.Millisecond,
		proxy: 10 * time.Millisecond}}
	got := j.cores().markdown("")
	unused := float64(runtime.NumCPU())*1000 - 60
	if want := fmt.Sprintf("| %s | 20.0 | 10.0 | 30.0 | %.1f |\n", pairsLockproxy,
		unused); !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
}

func TestRelayShowsEveryWorkloadOnce(t *testing.T) {
	for _, quick := range []bool{false, true} {
		j := relayPart(quick).jobs[0].(*relay)
		for _, w := range j.workloads {
			shown := 0
			for _, a := range aspects {
				if a.shows(w) {
					shown++
				}
			}
			if shown != 1 {
				t.Errorf("%v is in %d tables", w, shown)
			}
		}
	}
}

func TestRelayGoals(t *testing.T) {
	goals := measuredRelay().goals()
	if len(goals) != 6 {
		t.Fatalf("%d goals", len(goals))
	}
	// no lead can be told where a run of the others failed
	for i, want := range []bool{true, true, true, true, false, true} {
		if goals[i].met() != want {
			t.Errorf("%s: %+v: met %v", goals[i].name, goals[i].got, !want)
		}
	}
}

func TestGoal(t *testing.T) {
	for _, c := range []struct {
		goal goal
		want bool
	}{
		{goal{want: 1.1, atLeast: true, got: stat.Of([]float64{1, 1.1, 1.2})}, true},
		{goal{want: 1.1, atLeast: true, got: stat.Of([]float64{1, 1.09, 1.2})}, false},
		{goal{want: 20, got: stat.Of([]float64{20})}, true},
		{goal{want: 20, got: stat.Of([]float64{20.1})}, false},
		{goal{want: 20, got: stat.Of([]float64{stat.Failed})}, false},
	} {
		if got := c.goal.met(); got != c.want {
			t.Errorf("%+v: %v", c.goal, got)
		}
	}
	var g goal
	for _, v := range []float64{0.9, 0.4, 0.7} {
		g.keepLeast(stat.Of([]float64{v}))
	}
	if g.got.Median != 0.4 {
		t.Errorf("least of 0.9, 0.4 and 0.7: %v", g.got.Median)
	}
	g.keepLeast(stat.Of([]float64{stat.Failed}))
	g.keepLeast(stat.Of([]float64{0.1}))
	if g.met() || g.got.Rounds != 0 {
		t.Errorf("a workload that failed throughout is forgotten: %+v", g.got)
	}
}

func TestLatencyTable(t *testing.T) {
	// 100 latencies from base+1 to base+100 µs.
	run := func(base int, rate float64) *driven {
		d := &driven{rate: rate}
		for i := range 100 {
			d.latencies = append(d.latencies, time.Duration(base+i+1)*time.Microsecond)
		}
		return d
	}
	j := &halfLoad{rate: 1000, results: latencies{runs[driven]{{run(0, 1000), run(10, 1000)},
		{run(30, 1000), run(20, 500)}, {nil, run(40, 1000)}, {nil, nil}}}}
	got := j.sections()[0].markdown("")
	for _, want := range []string{
		"|  | p50 µs | p99 µs | p50 added | p99 added | reached |\n",
		"| direct | 55 (50–60) | 104 (99–109) |  |  | 1.00 (1.00–1.00) |\n",
		"| lockproxy | 75 (70–80) | 124 (119–129) | 20 (10–30) | 20 (10–30) | 0.75 (0.50–1.00) |\n",
		"| HAProxy | 90, 1 failed | 139, 1 failed | 30, 1 failed | 30, 1 failed | 1.00, 1 failed " +
			"|\n",
		"| twemproxy | failed | failed | failed | failed | failed |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestScaleTables(t *testing.T) {
	run := func(rate float64) *driven {
		return &driven{rate: rate, redisCPU: 10 * time.Microsecond, proxyCPU: 5 * time.Microsecond}
	}
	j := &scale{clients: []int{1, 5000}, results: runs[driven]{
		{run(100)}, {run(50)}, {run(40)}, {nil},
		{run(200)}, {run(220)}, {run(40)}, {nil},
	}}
	sections := j.sections()
	for i, want := range []string{"| 5,000 | 200 | 220 | 1.10 | 40 | 0.20 | failed | failed |\n",
		"| 1 | 15.0 | 15.0 [5.0] | 15.0 [5.0] | failed |\n"} {
		if got := sections[i].markdown(""); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestIdleTable(t *testing.T) {
	j := &idle{clients: 10000, results: runs[idled]{
		{{clients: 10000, memory: 4096, redisMemory: 4096, without: 100, among: 95}},
		{{clients: 9875, memory: 10240, later: 20480, redisMemory: 1024, without: 100, among: 80}},
		{nil},
	}}
	got := j.sections()[0].markdown("")
	for _, want := range []string{
		"| lockproxy | 9,875 | 10.0 | 20.0 | 1.0 | 100 | 80 | 0.80 |\n",
		"| HAProxy | – | failed |",
		"This machine lets a process have too few files open for 10,000 clients everywhere",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if goals := j.goals(); !goals[0].met() || goals[1].met() {
		t.Errorf("goals: %+v", goals)
	}
}

func TestDocument(t *testing.T) {
	l := &lab{versions: versions{redis: "7.0.15", haproxy: "2.6.12", lockproxy: "dev"},
		failures: []string{"twemproxy, GET: it broke"}, others: 0.25,
		args: []string{"--upstream-mode", "dedicated"}}
	d := benchDocument(&part{jobs: []job{measuredRelay()}})
	file := filepath.Join(t.TempDir(), "bench.md")
	if err := d.write(l, file); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| Redis | 7.0.15,", "| HAProxy | 2.6.12,", "## Goals\n",
		"| met |", "## Runs that failed\n", "- twemproxy, GET: it broke\n",
		"other programs used 25 % of the cores: **too much", "with `--upstream-mode dedicated`"} {
		if !strings.Contains(string(report), want) {
			t.Errorf("no %q in the report", want)
		}
	}
	if strings.Contains(string(report), "| twemproxy | ,") {
		t.Error("the version of a program that isn't there")
	}
	for _, a := range aspects {
		if _, err := os.Stat(filepath.Join(filepath.Dir(file),
			"bench-"+a.name+".svg")); err != nil {
			t.Error(err)
		}
	}
}

func TestParkingTable(t *testing.T) {
	j := newParking(2, time.Second)
	run := func(waits ...time.Duration) *outcome {
		o := &outcome{elapsed: time.Second, acquired: 10, total: 10, used: usage{commands: 55}}
		for _, w := range waits {
			o.clients = append(o.clients, client{stalled: w == 0, waits: []time.Duration{w}})
		}
		return o
	}
	j.results = runs[outcome]{{run(time.Second, 0)}, {run(3*time.Second, time.Second)},
		{run(time.Second, time.Second)}}
	got := j.sections()[0].markdown("bench-park")
	for _, want := range []string{"](bench-park-polling.svg)\n",
		"| directly | 10 | 11.0 | 0.50 |", "| through lockproxy | 10 | 3.0 | 2.00 |",
		"| 0 | 1 |\n", "| 5.5 |"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

func TestHoldingTable(t *testing.T) {
	j := newHolding(1000, 50, time.Second)
	run := func(acquired int, cpu time.Duration) *outcome {
		return &outcome{elapsed: time.Second, acquired: acquired, total: acquired,
			used: usage{commands: 4 * acquired, cpu: cpu}}
	}
	j.results = runs[outcome]{{run(60, 2*time.Millisecond), run(80, 2*time.Millisecond)},
		{run(100, 2*time.Millisecond), run(100, 2*time.Millisecond)}}
	got := j.sections()[0].markdown("")
	for _, want := range []string{"## A lock that 1,000 clients share\n",
		"| one lock, SHARED: 1,000 hold it | 70 (60–80) | 0.70 (0.60–0.80) | 29.2 (25.0–33.3) | " +
			"1.46 (1.25–1.67) | 4.0 |",
		"| 1,000 exclusive locks, as many others are held | 100 (100–100) | 1.00 (1.00–1.00) |"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
