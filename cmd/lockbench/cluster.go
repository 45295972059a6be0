package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

const (
	masterCount = 3
	// clusterKeys is the number of keys of each way. Directly, each master has an equal part of them.
	clusterKeys = masterCount * 10000
	// The suite writes random keys until nearly all have a value.
	filledEnough = 0.99
	foundEnough  = 0.98 // of the GETs
)

// clusterSuite is GET and SET of random keys on a Redis Cluster: directly by a client that knows
// clusters, through lockproxy by one that does not. redis-benchmark ends a run of several threads,
// as all with --cluster are, at the next quarter of a second, so its own rates are too low. The
// suite counts the commands of the masters in the middle of a run instead.
func clusterSuite(quick bool) *suite {
	run, rounds := time.Second, 5
	if quick {
		run, rounds = 500*time.Millisecond, 3
	}
	return &suite{name: "cluster", title: "A cluster", rounds: rounds, others: true,
		needs: needs{masters: masterCount, twemproxy: true}, base: viaDirect,
		about: fmt.Sprintf("GET and SET of random keys by redis-benchmark with %d threads on "+
			"%[1]d masters. Directly, it knows the cluster and sends each request to its master; "+
			"the keys of a master are in one slot. Through lockproxy, it does not know the "+
			"cluster, and the keys of a pipeline are in many slots. twemproxy knows no clusters: "+
			"it is in front of %[1]d separate Redises. The masters count the requests within %v. "+
			"Processor time is µs for each request.", masterCount, run),
		columns: []column{{"requests/s", "%.0f", true}, {"proxy CPU", "%.1f", false},
			{"Redis CPU", "%.1f", true}},
		cases: func(l *lab) (list []benchCase) {
			for _, pipeline := range []int{1, 16} {
				for _, test := range []string{"SET", "GET"} {
					w := workload{test, usualClients, pipeline, usualSize}
					for _, way := range l.waysWith(viaDirect, viaTwemproxy) {
						measure := func(b *bench) (figures, error) {
							return b.benchmarkCluster(way, w, run)
						}
						list = append(list, benchCase{w.String(), way, measure})
					}
				}
			}
			return list
		}}
}

// clusterLoad is a load that does not end by itself.
func (b *bench) clusterLoad(way string, w workload) load {
	l := load{b.ways[way].addr, w.test, w.clients, w.pipeline, w.size, math.MaxInt32 / 2,
		[]string{"--threads", strconv.Itoa(masterCount), "-r"}}
	if way == viaDirect { // redis-benchmark makes other keys for each master
		l.more = append(l.more, strconv.Itoa(clusterKeys/masterCount), "--cluster")
	} else {
		l.more = append(l.more, strconv.Itoa(clusterKeys))
	}
	return l
}

// fillCluster sets nearly all keys of a way.
func (b *bench) fillCluster(way string) error {
	l := b.clusterLoad(way, workload{"SET", usualClients, 16, usualSize})
	l.requests = 3 * clusterKeys
	for range 20 {
		if _, err := l.run(b.ctx); err != nil {
			return err
		}
		keys := int64(0)
		for _, m := range b.behind(way) {
			n, err := m.number("DBSIZE")
			if err != nil {
				return err
			}
			keys += n
		}
		if float64(keys) > filledEnough*clusterKeys {
			return nil
		}
	}
	return errors.New("too few keys have values after 20 runs of SET")
}

// benchmarkCluster is one run.
func (b *bench) benchmarkCluster(way string, w workload, d time.Duration) (figures, error) {
	if err := b.ways[way].serves(); err != nil { // redis-benchmark would try to connect forever
		return nil, fmt.Errorf("not running: %w", err)
	}
	if err := b.fillCluster(way); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan error, 1)
	go func() { // until cancel; its end is waited for below
		_, err := b.clusterLoad(way, w).run(ctx)
		ended <- err
		close(ended)
	}()
	defer func() {
		cancel()
		for range ended {
		}
	}()
	goOn := func(d time.Duration) error {
		select {
		case err := <-ended:
			return errors.Join(errors.New("redis-benchmark has ended by itself"), err)
		case <-time.After(d):
			return nil
		}
	}
	if err := goOn(300 * time.Millisecond); err != nil { // redis-benchmark connects
		return nil, err
	}
	began := time.Now()
	var took time.Duration
	used, proxy, err := b.during(way, func() error {
		began = time.Now()
		err := goOn(d)
		took = time.Since(began)
		return err
	})
	if err != nil {
		return nil, err
	}
	return w.clusterFigures(way, used, proxy, took)
}

var errUnseen = errors.New("the masters have seen no request")

// clusterFigures returns an error unless the masters have run the commands of the workload.
func (w workload) clusterFigures(way string, used usage, proxy,
	took time.Duration) (figures, error) {
	done, found := used.gets, used.found
	if w.test == "SET" {
		done, found = used.sets, used.sets
	}
	switch {
	case done == 0:
		return nil, errUnseen
	case float64(found) < foundEnough*float64(done):
		return nil, fmt.Errorf("%d of %d GETs found nothing", done-found, done)
	}
	f := figures{"requests/s": float64(done) / took.Seconds(),
		"Redis CPU": each(us(used.cpu), done)}
	if way != viaDirect {
		f["proxy CPU"] = each(us(proxy), done)
	}
	return f, nil
}
