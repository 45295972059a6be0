package main

import (
	"fmt"
	"time"
)

// idleSuite measures the costs of many idle clients, and whether they slow down a few active ones.
// Each case has servers of its own, on which no other case has left anything.
func idleSuite(quick bool) *suite {
	clients, rounds := 10000, 3
	if quick {
		clients, rounds = 2000, 1
	}
	return &suite{name: "idle", title: "Idle connections", rounds: rounds, others: true,
		needs: needs{fresh: true}, base: viaHAProxy,
		about: fmt.Sprintf("KB is the resident memory for each idle connection, of the proxy or, "+
			"directly, of Redis. KB later is the same after %d other clients have been active. "+
			"Rates are those of the other clients, GET, P=1, before the idle clients connect and "+
			"among them.", usualClients),
		columns: []column{{"KB", "%.1f", false}, {"KB later", "%.1f", false},
			{"KB of Redis", "%.1f", false}, {"requests/s before", "%.0f", false},
			{"among", "%.0f", false}, {"among ÷ before", "%.2f", false}},
		cases: func(l *lab) (list []benchCase) {
			n := l.idleClients(clients)
			name := count(n, "idle client")
			for _, way := range l.waysWith(viaDirect, viaHAProxy) {
				list = append(list, benchCase{name, way, func(b *bench) (figures, error) {
					return b.idle(way, n)
				}})
			}
			return list
		}}
}

// idleClients leaves room for the active clients, and for those whose end a proxy has not seen yet.
func (l *lab) idleClients(wanted int) int { return l.most(wanted) - 2*usualClients }

func (b *bench) idle(way string, n int) (figures, error) {
	var only []proxyBinary
	for _, p := range b.proxies {
		if p.name == way {
			only = append(only, p)
		}
	}
	own, err := b.alone(needs{haproxy: way == viaHAProxy}, only...)
	if err != nil {
		return nil, err
	}
	defer own.close()
	get := workload{"GET", usualClients, 1, usualSize}
	requests, err := own.calibrate(get, time.Second)
	if err != nil {
		return nil, err
	}
	active := func() (figures, error) { return own.benchmark(way, get, requests) }
	without, err := active()
	if err != nil {
		return nil, err
	}
	before, redisBefore, err := own.memory(way)
	if err != nil {
		return nil, err
	}
	idle, err := dialMany(own.ways[way].addr, n)
	defer idle.close()
	if err != nil {
		return nil, err
	}
	after, redisAfter, err := own.memory(way)
	if err != nil {
		return nil, err
	}
	among, err := active()
	if err != nil {
		return nil, err
	}
	later, _, err := own.memory(way)
	kb := func(bytes int) float64 { return each(float64(bytes)/1024, n) }
	return figures{"KB": kb(after - before), "KB later": kb(later - before),
		"KB of Redis": kb(redisAfter - redisBefore), "requests/s before": without["requests/s"],
		"among":          among["requests/s"],
		"among ÷ before": among["requests/s"] / without["requests/s"]}, err
}

// memory is the resident memory of a way's own process and of Redis, in bytes, after a rest.
func (b *bench) memory(way string) (front, redis int, err error) {
	select {
	case <-b.ctx.Done():
		return 0, 0, b.ctx.Err()
	case <-time.After(2 * time.Second):
	}
	if front, err = b.ways[way].process().resident(); err != nil {
		return 0, 0, err
	}
	redis, err = b.ways[viaDirect].process().resident()
	return front, redis, err
}
