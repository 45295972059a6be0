package main

import (
	"fmt"
	"time"

	"lockproxy/cmd/lockbench/load"
)

// idle is many clients that do nothing: what each costs, and whether the few that do something
// notice.
type idle struct {
	clients int // as many as the limit on open files allows, if that is fewer
	time    time.Duration
	results runs[idled] // of each way
}

// idled is one run of idle.
type idled struct {
	clients     int
	memory      float64 // bytes that the proxy or, directly, Redis needs for each idle client
	later       float64 // the same once others have been active among them
	redisMemory float64 // bytes that Redis needs for each idle client
	without     float64 // requests/s of the active clients when there are no others
	among       float64 // and among the idle ones
}

var idleTargets = []string{viaDirect, viaLockproxy, viaHAProxy}

func idlePart(quick bool) *part {
	j := &idle{clients: 10000, time: 2 * time.Second, results: make(runs[idled], len(idleTargets))}
	p := &part{rounds: 3, others: true, jobs: []job{j}}
	if quick {
		p.rounds, j.time = 1, time.Second
	}
	return p
}

func (j *idle) title() string   { return "Idle connections" }
func (j *idle) cases() []string { return idleTargets }

// measure uses a Redis and a proxy that are new: what others have left behind is not to be counted.
func (j *idle) measure(b *bench, way int) error {
	fresh := needs{targets: []string{viaDirect}}
	if way > 0 {
		fresh.targets = append(fresh.targets, idleTargets[way])
	}
	inner, err := b.open(fresh)
	if err != nil {
		return err
	}
	defer inner.close()
	t := inner.targets[len(inner.targets)-1]
	result, err := j.among(inner, t)
	return j.results.keep(inner, way, t, j.title(), result, err)
}

// settleTime is how long servers are left alone before their memory is read.
const settleTime = 2 * time.Second

func (j *idle) among(b *bench, t *target) (*idled, error) {
	n, err := b.most(t, j.clients, usualClients)
	if err != nil {
		return nil, err
	}
	plan, err := b.getPlan()
	if err != nil {
		return nil, err
	}
	plan.Time = j.time
	active, err := load.Open(t.server.addr, usualClients)
	if err != nil {
		return nil, err
	}
	defer active.Close()
	result := &idled{clients: n}
	without, err := b.driveClients(t, active, plan)
	if err != nil {
		return nil, err
	}
	before, err := b.memory(t)
	if err != nil {
		return nil, err
	}
	idle, err := load.Open(t.server.addr, n)
	if err != nil {
		return nil, err
	}
	defer idle.Close()
	after, err := b.memory(t)
	if err != nil {
		return nil, err
	}
	among, err := b.driveClients(t, active, plan)
	if err != nil {
		return nil, err
	}
	later, err := b.memory(t)
	if err != nil {
		return nil, err
	}
	result.without, result.among = without.rate, among.rate
	result.memory, result.later, result.redisMemory = each(after.front-before.front, n),
		each(later.front-before.front, n), each(after.redis-before.redis, n)
	return result, nil
}

func each(bytes, n int) float64 { return float64(bytes) / float64(n) }

// memory is what is resident of a target's own process, and of Redis, once they are at rest; bytes.
type memory struct{ front, redis int }

func (b *bench) memory(t *target) (m memory, err error) {
	select {
	case <-b.ctx.Done():
		return m, b.ctx.Err()
	case <-time.After(settleTime):
	}
	if m.front, err = t.server.process().resident(); err != nil {
		return m, err
	}
	m.redis, err = b.targets[0].server.process().resident()
	return m, err
}

// most is how many idle clients a target can have next to the active ones, at most wanted: each
// process can have only so many files open, and some proxies need two for a client.
func (b *bench) most(t *target, wanted, active int) (int, error) {
	const probes = 100
	before, err := t.server.process().files()
	if err != nil {
		return 0, err
	}
	clients, err := load.Open(t.server.addr, probes)
	if err != nil {
		return 0, err
	}
	defer clients.Close()
	after, err := t.server.process().files()
	if err != nil {
		return 0, err
	}
	perClient := max((after-before+probes/2)/probes, 1)
	if n := allowed(b.files, perClient, wanted, active); n > 0 {
		return n, nil
	}
	return 0, fmt.Errorf("the limit on open files, %d, is too low for idle clients: raise it "+
		"(ulimit -Hn)", b.files)
}

// allowed is how many idle clients there can be in addition to active ones.
func allowed(files, perClient, wanted, active int) int {
	return min(wanted, (files-spareFiles)/perClient-active)
}
