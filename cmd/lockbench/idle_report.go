package main

import (
	"fmt"
	"slices"

	"lockproxy/cmd/lockbench/chart"
)

const kilobyte = 1 << 10

func (r *idled) memoryKB() float64 { return r.memory / kilobyte }
func (r *idled) laterKB() float64  { return r.later / kilobyte }
func (r *idled) redisKB() float64  { return r.redisMemory / kilobyte }
func (r *idled) ratio() float64    { return r.among / r.without }

func (j *idle) sections() []*section {
	s := &section{title: "Idle connections",
		before: fmt.Sprintf("Clients that have sent one PING and then nothing. Memory: how much "+
			"more of the proxy (directly: of Redis) is resident with them than "+
			"without, for each; and once more after %d others, which have been there from the "+
			"beginning, have sent GETs among them for %v; the memory of the system "+
			"for sockets is not in it. Requests/s: what those %d get without the idle ones and "+
			"among them. Median (least–most of the rounds); each run with a new proxy and a "+
			"new "+
			"Redis.\n\n%s", usualClients, j.time, usualClients, j.shortfall()),
		header: []string{"", "idle clients", "KB each", "KB each, after load", "KB each in Redis",
			"requests/s without", "among idle", "ratio"}}
	bars := chart.Bars{Title: "Resident memory for each idle connection", Unit: "KB", Verb: "%.1f",
		Groups: []string{"idle", "idle, after load by others", "in Redis"}}
	for way, name := range idleTargets {
		s.row(name, j.counts(way),
			j.results.spread(way, (*idled).memoryKB).Format("%.1f"),
			j.results.spread(way, (*idled).laterKB).Format("%.1f"),
			j.results.spread(way, (*idled).redisKB).Format("%.1f"),
			j.results.spread(way, func(r *idled) float64 { return r.without }).Format("%.0f"),
			j.results.spread(way, func(r *idled) float64 { return r.among }).Format("%.0f"),
			j.results.spread(way, (*idled).ratio).Format("%.2f"))
		series := chart.Series{Name: name, Color: colorOf(name)}
		for _, of := range []func(*idled) float64{(*idled).memoryKB, (*idled).laterKB,
			(*idled).redisKB} {
			series.Values = append(series.Values, j.results.spread(way, of))
		}
		bars.Series = append(bars.Series, series)
	}
	s.figures = []figure{{"idle", "Memory for each idle connection, as in the table below", bars}}
	return []*section{s}
}

// counts is how many idle clients there were.
func (j *idle) counts(way int) string {
	for _, r := range j.results[way] {
		if r != nil {
			return thousands(r.clients)
		}
	}
	return "–"
}

// shortfall says what the limit on open files has cost.
func (j *idle) shortfall() string {
	for way := range idleTargets {
		for _, r := range j.results[way] {
			if r != nil && r.clients < j.clients {
				return fmt.Sprintf("This machine lets a process have too few files open for %s "+
					"clients everywhere, and some proxies need two for each: where there are "+
					"fewer, it is as many as it allows.",
					thousands(j.clients))
			}
		}
	}
	return ""
}

func (j *idle) goals() []goal {
	way := slices.Index(idleTargets, viaLockproxy)
	return []goal{
		{name: fmt.Sprintf("Memory of lockproxy for each of %s idle connections", j.counts(way)),
			want: 20, unit: " KB", got: j.results.spread(way, (*idled).memoryKB)},
		{name: "Throughput of 50 active clients among them, as a ratio to without", want: 0.9,
			atLeast: true, got: j.results.spread(way, (*idled).ratio)},
	}
}
