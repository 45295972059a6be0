package main

import (
	"context"
	"fmt"
	"time"
)

// maxRun bounds every connection of the benchmark, so that nothing can hang: no single run takes as
// long.
const maxRun = 120 * time.Second

// lab is what the parts of one run of lockbench share.
type lab struct {
	ctx      context.Context
	progress *progress
	dir      string // of the servers' files
	proxy    string // the lockproxy to measure
	args     []string
	files    int  // how many files each process may have open
	quick    bool // parts do less
	versions versions
	others   float64  // share of the cores that other programs used meanwhile
	failures []string // runs that failed, and count in no figure
}

// part is one of the things that lockbench measures: jobs that need the same servers.
type part struct {
	rounds int
	needs  needs
	others bool // HAProxy and twemproxy must be installed
	jobs   []job
}

// job is one workload: its cases run once in every round.
type job interface {
	title() string
	cases() []string
	// measure runs a case once and keeps the result. An error ends the report.
	measure(b *bench, i int) error
	sections() []*section
}

// grouped is a job whose cases are compared in groups of the same size, which follow each other:
// those of a group are run one right after the other, so that a disturbance from outside meets all
// of them.
type grouped interface{ group() int }

// bench is the servers of a part, and how often to measure.
type bench struct {
	*lab
	servers *servers
	rounds  int
	redis   string    // addresses
	proxies []string  // of lockproxy
	targets []*target // the ways to Redis that are compared, directly first
	monitor monitor
	masters masters // of the cluster, if it is needed
	shards  masters // next to a cluster, what twemproxy spreads keys over: it knows no clusters

	tlsAddr string    // of Redis with TLS, and the ways to it, if that is needed
	byTLS   []*target // directly first

	profiles string // where a lockproxy serves profiles of itself, if that is needed
}

// measure runs all of a part's jobs.
func (l *lab) measure(p *part) error {
	b, err := l.open(p.needs)
	if err != nil {
		return err
	}
	defer b.close()
	b.rounds = p.rounds
	for _, j := range p.jobs {
		if err := b.run(j); err != nil {
			return err
		}
	}
	return nil
}

// steps is how many runs a part is made of.
func (p *part) steps() (n int) {
	for _, j := range p.jobs {
		n += len(j.cases()) * p.rounds
	}
	return n
}

// run measures all cases of a job, interleaved.
func (b *bench) run(j job) error {
	names := j.cases()
	group := len(names)
	if g, ok := j.(grouped); ok {
		group = g.group()
	}
	for round := range b.rounds {
		for _, i := range turns(len(names), group, round) {
			b.progress.step("%s, round %d of %d: %s", j.title(), round+1, b.rounds, names[i])
			if err := b.isolated(func() error { return j.measure(b, i) }); err != nil {
				return fmt.Errorf("%s: %s: %w", j.title(), names[i], err)
			}
		}
	}
	return nil
}

// turns is the order in which a round goes through n cases. Every round begins with another group,
// and each group with another case, so that none always follows the same.
func turns(n, group, round int) []int {
	order := make([]int, 0, n)
	groups := n / group
	for g := range groups {
		first := (g + round) % groups * group
		for k := range group {
			order = append(order, first+(k+round)%group)
		}
	}
	return order
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

// during is what Redis, or the masters, have done while work ran.
func (b *bench) during(work func() error) (usage, error) {
	before, err := b.usage()
	if err != nil {
		return usage{}, err
	}
	if err := work(); err != nil {
		return usage{}, err
	}
	after, err := b.usage()
	return after.minus(before), err
}

// usage is what the Redis that the targets lead to has done so far, all masters of it.
func (b *bench) usage() (usage, error) {
	if len(b.masters.nodes) > 0 {
		return b.masters.usage()
	}
	return b.monitor.usage()
}

// failed notes a run that failed and starts its proxy again, so that the next run isn't its victim.
// It is an error if the benchmark can't go on.
func (b *bench) failed(t *target, run string, err error) error {
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	failure := fmt.Sprintf("%s, %s: %v", t.name, run, err)
	b.failures = append(b.failures, failure)
	b.progress.note("FAILED: %s", failure)
	if t.name == viaDirect {
		return nil // whether it still serves is found out by the next question to it
	}
	return t.server.restart(b.ctx)
}
