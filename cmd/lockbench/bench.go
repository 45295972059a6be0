package main

import (
	"context"
	"fmt"
	"time"
)

// maxRun bounds every connection of the benchmark, so that nothing can hang: no single run takes as long.
const maxRun = 120 * time.Second

// bench is what the workloads of a report have in common: the servers, the monitor, how many rounds.
type bench struct {
	ctx      context.Context
	progress *progress
	redis    string // addresses
	proxies  []string
	monitor  monitor
	rounds   int
}

// job is one workload's part of a report: its cases run once in every round.
type job interface {
	title() string
	cases() []string
	// measure runs a case once and keeps the result.
	measure(b *bench, i int) error
	section() *section
}

// run measures all cases of a job, interleaved. Every round begins with another case, so that none always follows the same.
func (b *bench) run(j job) (*section, error) {
	names := j.cases()
	for round := range b.rounds {
		for k := range names {
			i := (k + round) % len(names)
			b.progress.step("%s, round %d of %d: %s", j.title(), round+1, b.rounds, names[i])
			if err := b.isolated(func() error { return j.measure(b, i) }); err != nil {
				return nil, fmt.Errorf("%s: %s: %w", j.title(), names[i], err)
			}
		}
	}
	return j.section(), nil
}

// isolated runs on an empty Redis.
func (b *bench) isolated(measure func() error) error {
	if err := b.ctx.Err(); err != nil {
		return err
	}
	if _, err := b.monitor.do("FLUSHALL"); err != nil {
		return fmt.Errorf("cannot empty Redis: %w", err)
	}
	return measure()
}

// during is what Redis has done while work ran.
func (b *bench) during(work func() error) (usage, error) {
	before, err := b.monitor.usage()
	if err != nil {
		return usage{}, err
	}
	if err := work(); err != nil {
		return usage{}, err
	}
	after, err := b.monitor.usage()
	return after.minus(before), err
}
