package main

import (
	"fmt"

	"lockproxy/cmd/lockbench/chart"
	"lockproxy/cmd/lockbench/stat"
)

// quantile is a latency of every round by one of the ways, in µs.
func (l latencies) quantile(way int, q float64) []float64 {
	return l.figures(way, func(d *driven) float64 { return us(d.latencies.at(q)) })
}

// added is how much longer a quantile is than directly, round by round, in µs.
func (l latencies) added(way int, q float64) []float64 {
	differences := l.quantile(way, q)
	for r, direct := range l.quantile(0, q) {
		differences[r] -= direct
	}
	return differences
}

// The quantiles that are shown.
var quantiles = []struct {
	name string
	at   float64
}{{"p50", 0.5}, {"p99", 0.99}}

// table has a row for each way, with further cells that each adds.
func (l latencies) table(s *section, further func(way int) []string) {
	for _, q := range quantiles {
		s.header = append(s.header, q.name+" µs")
	}
	for _, q := range quantiles {
		s.header = append(s.header, q.name+" added")
	}
	for way, name := range allWays {
		cells := []string{name}
		for _, q := range quantiles {
			cells = append(cells, stat.Of(l.quantile(way, q.at)).Format("%.0f"))
		}
		for _, q := range quantiles {
			added := ""
			if way > 0 {
				added = stat.Of(l.added(way, q.at)).Format("%.0f")
			}
			cells = append(cells, added)
		}
		s.row(append(cells, further(way)...)...)
	}
}

// figure shows each quantile by each way.
func (l latencies) figure(name, title string, log bool) figure {
	bars := chart.Bars{Title: title, Unit: "µs", Verb: "%.0f", Log: log}
	for _, q := range quantiles {
		bars.Groups = append(bars.Groups, q.name)
	}
	for way, target := range allWays {
		series := chart.Series{Name: target, Color: colorOf(target)}
		for _, q := range quantiles {
			series.Values = append(series.Values, stat.Of(l.quantile(way, q.at)))
		}
		bars.Series = append(bars.Series, series)
	}
	return figure{name, title + ": the quantiles of the table below as bars", bars}
}

func (j *lone) sections() []*section {
	s := &section{title: "Latency: one client",
		before: fmt.Sprintf("One client sends GET of %s, waits for the reply and sends the next, "+
			"for %v a run. Microseconds, median over the rounds (least–most); added: "+
			"the difference to the same directly in the same round.", inBytes(usualSize), j.time),
		header: []string{""}}
	j.results.table(s, func(int) []string { return nil })
	s.figures = []figure{j.results.figure("latency", "Latency of GET, one client", false)}
	return []*section{s}
}

func (j *halfLoad) sections() []*section {
	s := &section{title: "Latency: half load",
		before: fmt.Sprintf("%d clients together send %.0f GETs of %s per second, for %v a run: "+
			"half of what they get directly if each sends as soon as it is answered. A "+
			"request's latency counts from when it was due, also if its client was still waiting "+
			"for the reply before it, so a way that can't keep up or stops for a "+
			"moment is charged with all that it delays. Reached: requests answered in time, of "+
			"those that were due; with less than all, the latencies are those of "+
			"a line that grows, and say only that it does.", usualClients, j.rate,
			inBytes(usualSize), j.time),
		header: []string{""}}
	j.results.table(s, func(way int) []string {
		reached := j.results.spread(way, func(d *driven) float64 { return d.rate / j.rate })
		return []string{reached.Format("%.2f")}
	})
	s.header = append(s.header, "reached")
	s.figures = []figure{j.results.figure("latency-half-load",
		"Latency of GET at half load, 50 clients", true)}
	return []*section{s}
}
