package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"lockproxy/cmd/lockbench/redisbench"
)

// clusterWays are compared in front of a cluster: directly by a client that knows clusters, through
// lockproxy by one that doesn't. twemproxy knows no clusters: it is in front of as many Redises that
// know nothing of each other.
var clusterWays = []string{viaDirect, viaLockproxy, viaTwemproxy}

// cluster is GET and SET of random keys by redis-benchmark on a Redis Cluster. redis-benchmark ends
// a run of several threads, which all of those with --cluster are, at the next quarter of a second,
// so its own rates are too low: what the masters have done within a while in the middle of a run is
// counted instead.
type cluster struct {
	time      time.Duration // that is counted
	workloads []workload
	// all keys have values, and keep them: only Redis is emptied before a run, not the masters
	filled  bool
	results runs[clustered] // of each workload, by each way
}

// clustered is one run. CPU is per request.
type clustered struct {
	rate     float64
	nodesCPU time.Duration // of all masters
	proxyCPU time.Duration // 0 directly
}

const (
	// clusterKeys is how many keys there are, by each way; directly as many for each master.
	clusterKeys = masterCount * 10000
	// Keys are written at random until nearly all have a value; masters differ in how many of
	// theirs have.
	filledEnough  = 0.998
	missesAllowed = 0.01 // of the GETs
	// clusterWarms is what redis-benchmark is given to connect.
	clusterWarms = 300 * time.Millisecond
)

func clusterPart(quick bool) *part {
	j := &cluster{time: time.Second}
	p := &part{rounds: 5, needs: needs{targets: clusterWays, masters: masterCount},
		others: true, jobs: []job{j}}
	if quick {
		p.rounds, j.time = 3, 500*time.Millisecond
	}
	for _, pipeline := range []int{1, 16} {
		j.workloads = append(j.workloads, workload{"SET", usualClients, pipeline, usualSize},
			workload{"GET", usualClients, pipeline, usualSize})
	}
	j.results = make(runs[clustered], len(j.cases()))
	return p
}

func (j *cluster) title() string { return "Cluster" }
func (j *cluster) group() int    { return len(clusterWays) }

func (j *cluster) cases() []string { return byWays(j.workloads, clusterWays) }

func (j *cluster) measure(b *bench, i int) error {
	if !j.filled {
		if err := b.fillCluster(); err != nil {
			return fmt.Errorf("cannot write the keys: %w", err)
		}
		j.filled = true
	}
	w, way := i/len(clusterWays), i%len(clusterWays)
	result, err := b.benchmarkCluster(b.targets[way], j.workloads[w], j.time)
	return j.results.keep(b, i, b.targets[way], j.workloads[w].String(), result, err)
}

// clusterLoad never ends by itself.
func clusterLoad(t *target, w workload) redisbench.Load {
	l := redisbench.Load{Addr: t.server.addr, Test: w.test, Clients: w.clients,
		Pipeline: w.pipeline, Size: w.size,
		Requests: math.MaxInt32 / 2, Threads: masterCount, Keys: clusterKeys}
	if t.name == viaDirect {
		l.Cluster, l.Keys = true, clusterKeys/masterCount // it makes other keys for each master
	}
	return l
}

// behind is what does the work of a target's clients.
func (b *bench) behind(t *target) *masters {
	if t.name == viaTwemproxy {
		return &b.shards
	}
	return &b.masters
}

// fillCluster gives the keys of all ways values.
func (b *bench) fillCluster() error {
	ctx, cancel := context.WithTimeoutCause(b.ctx, runLimit,
		fmt.Errorf("not done after %v", runLimit))
	defer cancel()
	for _, t := range b.targets {
		m := b.behind(t)
		before, err := m.size()
		if err != nil {
			return err
		}
		l := clusterLoad(t, workload{"SET", usualClients, 16, usualSize})
		l.Requests = 2 * clusterKeys
		for keys := before; float64(keys-before) < filledEnough*clusterKeys; {
			_, err := redisbench.Run(ctx, l)
			if err == nil {
				keys, err = m.size()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
		}
	}
	return nil
}

// benchmarkCluster is one run.
func (b *bench) benchmarkCluster(t *target, w workload, d time.Duration) (*clustered, error) {
	if err := t.server.serves(); err != nil { // redis-benchmark would try to connect for ever
		return nil, fmt.Errorf("not running: %w", err)
	}
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan error, 1)
	go func() { // until cancel; it is waited for below
		_, err := redisbench.Run(ctx, clusterLoad(t, w))
		ended <- err
		close(ended)
	}()
	defer func() {
		cancel()
		for range ended {
		}
	}()
	if err := early(ended, clusterWarms); err != nil {
		return nil, err
	}
	before, err := b.clusterSample(t)
	if err != nil {
		return nil, err
	}
	if err := early(ended, d); err != nil {
		return nil, err
	}
	after, err := b.clusterSample(t)
	if err != nil {
		return nil, err
	}
	return between(before, after, t, w)
}

// early is an error if what shall run on for a time ends within it.
func early(ended <-chan error, d time.Duration) error {
	select {
	case err := <-ended:
		if err == nil {
			err = errors.New("redis-benchmark has ended by itself")
		}
		return err
	case <-time.After(d):
		return nil
	}
}

// clusterSample is what the servers have done until a moment.
type clusterSample struct {
	at       time.Time
	used     usage // by all masters
	proxyCPU time.Duration
}

func (b *bench) clusterSample(t *target) (s clusterSample, err error) {
	if s.proxyCPU, err = t.server.process().cpu(); err != nil {
		return s, err
	}
	s.at = time.Now()
	s.used, err = b.behind(t).usage()
	return s, err
}

// between is an error unless the masters have done what a workload asks for.
func between(before, after clusterSample, t *target, w workload) (*clustered, error) {
	used := after.used.minus(before.used)
	done := used.gets
	if w.test == "SET" {
		done = used.sets
	}
	switch {
	case done == 0:
		return nil, errors.New("the masters have seen no request")
	case float64(used.misses) > missesAllowed*float64(done):
		return nil, fmt.Errorf("%d of %d GETs found nothing", used.misses, done)
	}
	r := &clustered{rate: float64(done) / after.at.Sub(before.at).Seconds(),
		nodesCPU: used.cpu / time.Duration(done)}
	if t.name != viaDirect {
		r.proxyCPU = (after.proxyCPU - before.proxyCPU) / time.Duration(done)
	}
	return r, nil
}
