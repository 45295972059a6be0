package main

import (
	"fmt"
	"time"

	"lockproxy/cmd/lockbench/load"
	"lockproxy/cmd/lockbench/stat"
)

// lone is one client that sends a request and waits for its reply: what a proxy adds when nothing
// else happens.
type lone struct {
	time    time.Duration
	results latencies
}

// halfLoad is requests that are due at a fixed rate, half of what Redis can do directly, by the
// usual number of clients.
type halfLoad struct {
	time    time.Duration
	rate    float64 // requests/s; 0: not known yet
	results latencies
}

// latencies are of each way.
type latencies struct{ runs[driven] }

func latencyPart(quick bool) *part {
	alone, loaded := &lone{time: time.Second}, &halfLoad{time: 2 * time.Second}
	p := &part{rounds: 7, needs: needs{targets: allWays}, others: true, jobs: []job{alone, loaded}}
	if quick {
		p.rounds, alone.time, loaded.time = 3, 500*time.Millisecond, time.Second
	}
	alone.results.runs = make(runs[driven], len(allWays))
	loaded.results.runs = make(runs[driven], len(allWays))
	return p
}

func (j *lone) title() string   { return "Latency, 1 client" }
func (j *lone) cases() []string { return allWays }

func (j *lone) measure(b *bench, i int) error {
	plan, err := b.getPlan()
	if err != nil {
		return err
	}
	plan.Time = j.time
	return j.results.measure(b, i, 1, plan, j.title())
}

func (j *halfLoad) title() string   { return "Latency, half load" }
func (j *halfLoad) cases() []string { return allWays }

func (j *halfLoad) measure(b *bench, i int) error {
	plan, err := b.getPlan()
	if err != nil {
		return err
	}
	plan.Time = j.time
	if j.rate == 0 {
		full, err := b.fullRate(plan)
		if err != nil {
			return fmt.Errorf("cannot tell what the full load is: %w", err)
		}
		j.rate = full / 2
	}
	plan.Rate = j.rate
	return j.results.measure(b, i, usualClients, plan, j.title())
}

// fullRate is what the usual clients get directly if each sends as soon as it is answered: the
// median of three runs.
func (b *bench) fullRate(p load.Plan) (float64, error) {
	var rates []float64
	for range 3 {
		d, err := b.driveNew(b.targets[0], usualClients, p)
		if err != nil {
			return 0, err
		}
		rates = append(rates, d.rate)
	}
	return stat.Median(rates), nil
}

// measure runs a plan by one of the ways. Requests that go unanswered in an open loop don't make
// the run a failure: they count as long as they waited.
func (l latencies) measure(b *bench, way, clients int, p load.Plan, run string) error {
	d, err := b.driveNew(b.targets[way], clients, p)
	return l.keep(b, way, b.targets[way], run, d, err)
}
