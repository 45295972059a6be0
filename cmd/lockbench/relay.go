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

// Other workloads differ from the usual one in one respect.
const (
	usualClients = 50
	usualSize    = 64
)

// relaySuite is GET and SET by redis-benchmark, directly and through each proxy. It shows the costs
// of a proxy.
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
	requests := map[workload]int{} // enough to keep Redis busy for the time of a run
	return &suite{name: "relay", title: "GET and SET", rounds: rounds, others: true,
		needs: needs{haproxy: true, twemproxy: true}, base: viaDirect,
		about: "By redis-benchmark, which has one thread. P is how many requests a client sends " +
			"before it waits for the replies. After each run lockbench asks Redis whether it has " +
			"seen all requests and had a value for each GET. Processor time is µs for each " +
			"request. Where the client CPU is near the time between requests, the client limits " +
			"the rate.",
		columns: []column{{"requests/s", "%.0f", true}, {"p50 ms", "%.3f", false},
			{"p99 ms", "%.3f", false}, {"client CPU", "%.1f", false}, {"proxy CPU", "%.1f", false},
			{"Redis CPU", "%.1f", true}},
		cases: func(l *lab) (list []benchCase) {
			for _, w := range workloads {
				for _, way := range l.waysWith(viaDirect, viaHAProxy, viaTwemproxy) {
					measure := func(b *bench) (f figures, err error) {
						if requests[w] == 0 {
							if requests[w], err = b.calibrate(w, run); err != nil {
								return nil, fmt.Errorf("cannot find out how many requests to send: %w", err)
							}
						}
						f, err = b.benchmark(way, w, requests[w])
						if way == viaDirect && err == nil { // the calibration may have met a bad moment
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

// calibrate finds the number of requests that keep Redis busy for a time.
func (b *bench) calibrate(w workload, d time.Duration) (int, error) {
	least := 4 * w.clients * w.pipeline // otherwise some clients would have nothing to send
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

// benchmark runs redis-benchmark once and checks that Redis has seen each request once: the figures
// of a proxy that replies by itself, loses requests or repeats them do not count.
func (b *bench) benchmark(way string, w workload, requests int) (f figures, err error) {
	s := b.ways[way]
	if err := s.serves(); err != nil { // redis-benchmark would try to connect forever
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

// seenBy returns an error unless Redis has run the requests. redis-benchmark sends whole pipelines,
// and of the last ones more requests than it counts. A lockproxy that has just started also reads,
// but only keys that do not exist.
func (w workload) seenBy(u usage, requests int) error {
	done, found := u.gets, u.found
	if w.test == "SET" {
		done, found = u.sets, u.sets
	}
	switch {
	case done < requests || done > requests+w.clients*w.pipeline:
		return fmt.Errorf("%d requests were answered, but Redis has seen %d", requests, done)
	case found < requests:
		return fmt.Errorf("%d of %d GETs found nothing", requests-found, requests)
	}
	return nil
}
