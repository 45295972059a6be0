package main

import (
	"fmt"
	"runtime"
	"slices"

	"lockproxy/cmd/lockbench/stat"
)

// spent is the processor time that went into one request of a run, µs, by who has used it.
type spent struct{ client, proxy, redis float64 }

// unused is what of the cores' time nobody had who takes part, µs for each of what was done at this
// rate. It is never below 0, though the kernel counts in coarse steps.
func (s spent) unused(rate float64) float64 {
	return max(0, float64(runtime.NumCPU())*1e6/rate-s.client-s.proxy-s.redis)
}

// allowed is the ratio to direct that the client could have reached with a core for itself all the
// time, by what it has used for a request.
func (j *relay) allowed(w, way int) stat.Spread {
	rates := j.results.figures(j.run(w, way), func(r *ran) float64 { return 1e6 / r.client })
	return stat.Of(stat.Ratios(rates, j.results.figures(j.run(w, 0), relayRate)))
}

// cores shows who uses them with the usual number of clients, directly and through lockproxy.
func (j *relay) cores() *section {
	s := &section{title: "Relay: who uses the cores", before: "Processor time for a request, µs, " +
		"in the runs above, and what was left unused of that of all cores: the time in which " +
		"all others wait for one, or for being woken. redis-benchmark has a single thread, whose " +
		"start counts here. Where it is busy all the time, directly as through a proxy, " +
		"no proxy can get beyond the last column, the ratio to direct if it had a core for " +
		"itself throughout; and it has less of one where Redis and the proxy need more than " +
		"the other.",
		header: []string{"", "direct: client", "Redis", "unused", "through lockproxy: client",
			"lockproxy", "Redis", "unused", "ratio that the client allows"}}
	way := slices.Index(allWays, viaLockproxy)
	for w, load := range j.workloads {
		if load.clients != usualClients {
			continue
		}
		cells := []string{fmt.Sprintf("%s, P=%d, %s", load.test, load.pipeline, inBytes(load.size))}
		add := func(way int, of func(*ran) float64) {
			cells = append(cells, j.results.spread(j.run(w, way), of).Format("%.1f"))
		}
		for _, way := range []int{0, way} {
			add(way, func(r *ran) float64 { return r.client })
			if way > 0 {
				add(way, func(r *ran) float64 { return r.proxy })
			}
			add(way, func(r *ran) float64 { return r.redis })
			add(way, func(r *ran) float64 { return r.unused(r.rate) })
		}
		s.row(append(cells, j.allowed(w, way).Format("%.2f"))...)
	}
	return s
}

// spent is for each acquisition and its release.
func (o *outcome) spent() spent {
	return spent{client: per(us(o.client), o.total), proxy: per(us(o.proxy), o.total),
		redis: per(us(o.used.cpu), o.total)}
}

// cores shows who uses them. Those who still waited at the end are among those that were served,
// which makes no difference here.
func (j *pairs) cores() *section {
	s := &section{title: "A lock each: who uses the cores", before: "Processor time for a pair, " +
		"µs, in the runs above, and what was left unused of that of all cores: the time in which " +
		"all others wait for one, or for being woken. The clients of a contender are threads of " +
		"one program.",
		header: []string{"", "clients", "lockproxy", "Redis", "unused"}}
	for i, c := range j.contenders {
		s.row(c.name,
			spread(j.results[i], "%.1f", func(o *outcome) float64 { return o.spent().client }),
			spread(j.results[i], "%.1f", func(o *outcome) float64 { return o.spent().proxy }),
			spread(j.results[i], "%.1f", func(o *outcome) float64 { return o.spent().redis }),
			spread(j.results[i], "%.1f", func(o *outcome) float64 {
				return o.spent().unused(o.rate())
			}))
	}
	return s
}
