package main

import (
	"fmt"
	"slices"

	"lockproxy/cmd/lockbench/chart"
	"lockproxy/cmd/lockbench/stat"
)

// aspect is a table of relay: the workloads that differ in one respect.
type aspect struct {
	name   string // of the figure's file
	title  string
	figure string // title of the figure
	shows  func(workload) bool
	label  func(workload) string // in the table
	short  func(workload) string // in the figure
}

var aspects = []aspect{
	{"relay-pipelining", "Requests in a pipeline", fmt.Sprintf("%d clients, values of %s",
		usualClients, inBytes(usualSize)),
		func(w workload) bool { return w.clients == usualClients && w.size == usualSize },
		func(w workload) string { return fmt.Sprintf("%s, P=%d", w.test, w.pipeline) },
		func(w workload) string { return fmt.Sprintf("%s P=%d", w.test, w.pipeline) }},
	{"relay-values", "Size of values", fmt.Sprintf("%d clients, large values", usualClients),
		func(w workload) bool { return w.clients == usualClients && w.size != usualSize },
		func(w workload) string {
			return fmt.Sprintf("%s, %s, P=%d", w.test, inBytes(w.size), w.pipeline)
		},
		func(w workload) string {
			return fmt.Sprintf("%s P=%d\n%s", w.test, w.pipeline, inBytes(w.size))
		}},
	{"relay-clients", "Number of clients", fmt.Sprintf("1 and 1,000 clients, values of %s",
		inBytes(usualSize)),
		func(w workload) bool { return w.clients != usualClients },
		func(w workload) string {
			return fmt.Sprintf("%s, %s, P=%d", w.test, count(w.clients, "client"), w.pipeline)
		},
		func(w workload) string {
			return fmt.Sprintf("%s P=%d\n%s", w.test, w.pipeline, count(w.clients, "client"))
		}},
}

func (j *relay) sections() (list []*section) {
	for i, a := range aspects {
		s := j.aspect(a)
		if i == 0 {
			s.before = "GET and SET by redis-benchmark. Directly: requests/s, median (least–most " +
				"of the rounds). Through each proxy: the ratio to those directly in the same " +
				"round, median (least–most). P is how many requests a client sends before it " +
				"waits for the replies. After every run Redis is asked whether it has " +
				"seen all of the requests and had a value for each GET; a run with any error is " +
				"counted as failed, and in no figure.\n\n" + s.before
		}
		list = append(list, s)
	}
	return append(list, j.cores())
}

func (j *relay) aspect(a aspect) *section {
	s := &section{title: "Relay: " + lowerFirst(a.title), before: upperFirst(a.figure) + ".",
		header: append([]string{"", "direct, requests/s"}, allWays[1:]...)}
	bars := chart.Bars{Title: "Throughput through a proxy: " + a.figure, Unit: "ratio to direct",
		Verb: "%.2f", Mark: 1}
	for _, name := range allWays[1:] {
		bars.Series = append(bars.Series, chart.Series{Name: name, Color: colorOf(name)})
	}
	for w, load := range j.workloads {
		if !a.shows(load) {
			continue
		}
		cells := []string{a.label(load), j.results.spread(j.run(w, 0), relayRate).Format("%.0f")}
		for way := range allWays[1:] {
			ratio := j.ratio(w, way+1)
			cells = append(cells, ratio.Format("%.2f"))
			bars.Series[way].Values = append(bars.Series[way].Values, ratio)
		}
		s.row(cells...)
		bars.Groups = append(bars.Groups, a.short(load))
	}
	s.figures = []figure{{a.name, bars.Title +
		", as a ratio to direct Redis: the table below as bars", bars}}
	return s
}

// run is the case of a workload by one of the ways.
func (j *relay) run(w, way int) int { return w*len(allWays) + way }

func relayRate(r *ran) float64 { return r.rate }

// ratio is of a workload, by one of the ways, to the same directly.
func (j *relay) ratio(w, way int) stat.Spread {
	return j.results.ratio(j.run(w, way), j.run(w, 0), relayRate)
}

func (j *relay) goals() (list []goal) {
	least := goal{name: "GET and SET: the least ratio of all workloads", want: 0.5, atLeast: true}
	ahead := goal{name: "The same, P=1 and P=16: least lead over the better of the other proxies " +
		"(lockproxy ÷ it)", want: 1, atLeast: true}
	for w, load := range j.workloads {
		ratio := j.ratio(w, slices.Index(allWays, viaLockproxy))
		if usual := load.clients == usualClients && load.size == usualSize; usual &&
			load.pipeline < 64 {
			want := map[int]float64{1: 1.1, 16: 0.65}[load.pipeline]
			list = append(list, goal{name: fmt.Sprintf("%v: ratio to direct", load), want: want,
				atLeast: true, got: ratio})
			ahead.keepLeast(j.lead(w))
		}
		least.keepLeast(ratio)
	}
	return append(list, ahead, least)
}

// lead is lockproxy's rate as a ratio to the better of the other proxies in the same round.
func (j *relay) lead(w int) stat.Spread {
	rates := func(name string) []float64 {
		return j.results.figures(j.run(w, slices.Index(allWays, name)), relayRate)
	}
	leads, haproxy, twemproxy := rates(viaLockproxy), rates(viaHAProxy), rates(viaTwemproxy)
	for r := range leads {
		leads[r] /= max(haproxy[r], twemproxy[r])
	}
	return stat.Of(leads)
}
