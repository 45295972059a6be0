package main

import (
	"fmt"
	"strings"
	"time"
)

// workload is one way to use redis-benchmark.
type workload struct {
	test                    string
	clients, pipeline, size int
}

func (w workload) String() string {
	return fmt.Sprintf("%s, %s, P=%d, %d B", w.test, count(w.clients, "client"), w.pipeline, w.size)
}

// The workload that the others differ from in one respect.
const (
	usualClients = 50
	usualSize    = 64
)

// relaySuite is GET and SET by redis-benchmark, directly and through each proxy: what it costs that
// a proxy is in between.
func relaySuite(quick bool) *suite {
	run, rounds := 800*time.Millisecond, 5
	var workloads []workload
	both := func(clients, pipeline, size int) {
		workloads = append(workloads, workload{"GET", clients, pipeline, size},
			workload{"SET", clients, pipeline, size})
	}
	both(usualClients, 1, usualSize)
	both(usualClients, 16, usualSize)
	workloads = append(workloads, workload{"GET", 1, 1, usualSize})
	if quick {
		run, rounds = 400*time.Millisecond, 3
	} else {
		both(usualClients, 64, usualSize)
		both(usualClients, 16, 1<<10)
		both(usualClients, 1, 64<<10)
		both(1000, 1, usualSize)
		both(1000, 16, usualSize)
		both(5000, 1, usualSize)
	}
	requests := map[workload]int{} // as many as keep Redis busy for the time of a run
	return &suite{name: "relay", title: "GET and SET", rounds: rounds, others: true,
		needs: needs{haproxy: true, twemproxy: true}, base: viaDirect,
		about: "By redis-benchmark, which has one thread. P is how many requests a client sends " +
			"before it waits for the replies. After each run Redis is asked whether it has seen " +
			"all requests and had a value for each GET. Processor time is µs for each request; " +
			"where redis-benchmark's is near the time between requests, it is the bound.",
		columns: []column{{"requests/s", "%.0f", true}, {"p50 ms", "%.3f", false},
			{"p99 ms", "%.3f", false}, {"client CPU", "%.1f", false}, {"proxy CPU", "%.1f", false},
			{"Redis CPU", "%.1f", true}},
		cases: func(l *lab) (list []benchCase) {
			for _, w := range workloads {
				for _, way := range l.waysWith(viaDirect, viaHAProxy, viaTwemproxy) {
					measure := func(b *bench) (f figures, err error) {
						if requests[w] == 0 {
							if requests[w], err = b.calibrate(w, run); err != nil {
								return nil, fmt.Errorf("cannot tell how much to send: %w", err)
							}
						}
						f, err = b.benchmark(way, w, requests[w])
						if way == viaDirect && err == nil { // if calibrated at a bad moment
							requests[w] = max(requests[w], int(f["requests/s"]*run.Seconds()))
						}
						return f, err
					}
					list = append(list, benchCase{w.String(), way, measure})
				}
			}
			return list
		}}
}

// waysWith is the first of the ways, each lockproxy, and the other ways.
func (l *lab) waysWith(first string, others ...string) []string {
	ways := []string{first}
	for _, p := range l.proxies {
		ways = append(ways, p.name)
	}
	return append(ways, others...)
}

// calibrate finds out how many requests keep Redis busy for a time.
func (b *bench) calibrate(w workload, d time.Duration) (int, error) {
	least := 4 * w.clients * w.pipeline // or some clients would have nothing to send
	for n := max(least, 500); ; n *= 4 {
		f, err := b.benchmark(viaDirect, w, n)
		if err != nil {
			return 0, err
		}
		if float64(n)/f["requests/s"] > d.Seconds()/4 {
			return max(least, int(f["requests/s"]*d.Seconds())), nil
		}
	}
}

// benchmark runs redis-benchmark once and looks that Redis itself has seen all of it: a proxy that
// answers by itself, loses requests or sends them twice is no measure.
func (b *bench) benchmark(way string, w workload, requests int) (f figures, err error) {
	s := b.ways[way]
	if err := s.serves(); err != nil { // redis-benchmark would try to connect for ever
		return nil, fmt.Errorf("not running: %w", err)
	}
	if _, err := b.monitors[0].do("SET", benchKey, strings.Repeat("x", w.size)); err != nil {
		return nil, err
	}
	used, proxy, err := b.during(way, func() (err error) {
		f, err = load{s.addr, w.test, w.clients, w.pipeline, w.size, requests, nil}.run(b.ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	f["Redis CPU"] = each(us(used.cpu), requests)
	if way != viaDirect {
		f["proxy CPU"] = each(us(proxy), requests)
	}
	return f, w.seenBy(used, requests)
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
