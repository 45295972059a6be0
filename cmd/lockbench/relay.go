package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"lockproxy/cmd/lockbench/redisbench"
)

// relay is GET and SET by redis-benchmark, directly and through each proxy: what it costs that a
// proxy is in between.
type relay struct {
	// how long a run takes directly; through a proxy as many requests are sent
	time      time.Duration
	workloads []workload
	// of a run of each workload: as many as have kept Redis busy for that time; 0: not known yet
	requests []int
	results  runs[ran] // of each workload, by each way
}

// ran is one run.
type ran struct {
	rate float64 // requests/s
	spent
}

// workload is one way to use redis-benchmark.
type workload struct {
	test                    string
	clients, pipeline, size int
}

func (w workload) String() string {
	return fmt.Sprintf("%s, %s, P=%d, %s", w.test, count(w.clients, "client"), w.pipeline,
		inBytes(w.size))
}

// The workload that the others differ from in one respect, and what each of them shows.
const (
	usualClients = 50
	usualSize    = 64
)

func relayPart(quick bool) *part {
	j := &relay{time: 800 * time.Millisecond}
	p := &part{rounds: 5, needs: needs{targets: allWays}, others: true, jobs: []job{j}}
	both := func(clients, pipeline, size int) {
		j.workloads = append(j.workloads, workload{"GET", clients, pipeline, size},
			workload{"SET", clients, pipeline, size})
	}
	for _, pipeline := range []int{1, 16, 64} {
		both(usualClients, pipeline, usualSize)
	}
	if quick {
		p.rounds, j.time = 3, 400*time.Millisecond
		j.workloads = append(j.workloads, workload{"GET", usualClients, 16, 1 << 10},
			workload{"SET", usualClients, 1, 64 << 10}, workload{"GET", 1, 1, usualSize},
			workload{"GET", 1000, 1, usualSize})
	} else {
		for _, size := range []int{1 << 10, 64 << 10} {
			both(usualClients, 1, size)
			both(usualClients, 16, size)
		}
		for _, clients := range []int{1, 1000} {
			both(clients, 1, usualSize)
			both(clients, 16, usualSize)
		}
	}
	j.requests = make([]int, len(j.workloads))
	j.results = make(runs[ran], len(j.cases()))
	return p
}

func (j *relay) title() string { return "Relay" }
func (j *relay) group() int    { return len(allWays) }

func (j *relay) cases() []string { return byWays(j.workloads, allWays) }

func (j *relay) measure(b *bench, i int) error {
	w, way := i/len(allWays), i%len(allWays)
	if j.requests[w] == 0 {
		n, err := b.calibrate(j.workloads[w], j.time)
		if err != nil {
			return fmt.Errorf("cannot tell how many requests to send: %w", err)
		}
		j.requests[w] = n
	}
	result, err := b.benchmark(b.targets[way], j.workloads[w], j.requests[w])
	if way == 0 && err == nil { // calibrated at a bad moment, runs would stay short
		j.requests[w] = max(j.requests[w], int(result.rate*j.time.Seconds()))
	}
	return j.results.keep(b, i, b.targets[way], j.workloads[w].String(), result, err)
}

// calibrate finds out how many requests keep Redis busy for a time.
func (b *bench) calibrate(w workload, d time.Duration) (int, error) {
	least := 4 * w.clients * w.pipeline // or some clients would have nothing to send
	for n := max(least, 500); ; {
		r, err := b.benchmark(b.targets[0], w, n)
		if err != nil {
			return 0, err
		}
		if took := float64(n) / r.rate; took > d.Seconds()/4 {
			return max(least, int(r.rate*d.Seconds())), nil
		}
		n *= 4
	}
}

// runLimit is for one run of redis-benchmark, far longer than any should take.
const runLimit = 60 * time.Second

// benchmark runs redis-benchmark once and looks that Redis itself has seen all of it: a proxy that
// answers by itself, loses requests or sends them twice is no measure.
func (b *bench) benchmark(t *target, w workload, requests int) (*ran, error) {
	if err := t.server.serves(); err != nil { // redis-benchmark would try to connect for ever
		return nil, fmt.Errorf("not running: %w", err)
	}
	value := strings.Repeat("x", w.size)
	if _, err := b.monitor.do("SET", redisbench.Key, value); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(b.ctx, runLimit,
		fmt.Errorf("not done after %v", runLimit))
	defer cancel()
	before, err := t.server.process().cpu()
	if err != nil {
		return nil, err
	}
	var report redisbench.Report
	used, err := b.during(func() (err error) {
		report, err = redisbench.Run(ctx, redisbench.Load{Addr: t.server.addr, Test: w.test,
			Clients: w.clients, Pipeline: w.pipeline, Size: w.size, Requests: requests})
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := t.server.process().cpu()
	if err != nil {
		return nil, err
	}
	r := &ran{rate: report.Rate, spent: spent{client: us(report.CPU) / float64(requests),
		redis: us(used.cpu) / float64(requests)}}
	if t.name != viaDirect {
		r.proxy = us(after-before) / float64(requests)
	}
	return r, w.seenBy(used, requests)
}

// seenBy is an error unless Redis has done what was asked for. redis-benchmark sends whole
// pipelines: of the last some more than it counts.
func (w workload) seenBy(u usage, requests int) error {
	done := u.gets
	if w.test == "SET" {
		done = u.sets
	}
	switch {
	case done < requests || done > requests+w.clients*w.pipeline:
		return fmt.Errorf("%d requests were answered, but Redis has seen %d", requests, done)
	case u.misses > 0:
		return fmt.Errorf("%d of %d GETs found nothing", u.misses, requests)
	}
	return nil
}
