package main

import (
	"fmt"
	"time"

	"lockproxy/cmd/lockbench/chart"
)

// scale is one workload with more and more clients: whether what a command costs stays the same.
type scale struct {
	time    time.Duration
	clients []int
	results runs[driven] // of each number of clients, by each way
}

func scalePart(quick bool) *part {
	j := &scale{time: 1500 * time.Millisecond, clients: []int{1, 10, 100, 1000, 5000}}
	p := &part{rounds: 3, needs: needs{targets: allWays}, others: true, jobs: []job{j}}
	if quick {
		p.rounds, j.time = 1, 700*time.Millisecond
	}
	j.results = make(runs[driven], len(j.cases()))
	return p
}

// scaleGrace is what thousands of clients can take to have their last reply on a busy machine.
const scaleGrace = 10 * time.Second

func (j *scale) title() string { return "Scale" }
func (j *scale) group() int    { return len(allWays) }

func (j *scale) cases() []string {
	return byWays(over(j.clients, func(n int) string { return count(n, "client") }), allWays)
}

func (j *scale) measure(b *bench, i int) error {
	n, way := i/len(allWays), i%len(allWays)
	plan, err := b.getPlan()
	if err != nil {
		return err
	}
	plan.Time, plan.Grace = j.time, scaleGrace
	d, err := b.driveNew(b.targets[way], j.clients[n], plan)
	if err == nil && d.unanswered > 0 {
		err = fmt.Errorf("%d requests were not answered", d.unanswered)
	}
	return j.results.keep(b, i, b.targets[way], count(j.clients[n], "client"), d, err)
}

func driveRate(d *driven) float64 { return d.rate }
func bothCPU(d *driven) float64   { return us(d.redisCPU + d.proxyCPU) }

func (j *scale) sections() []*section {
	rates := &section{title: "Scale: throughput",
		before: fmt.Sprintf("Each client sends GET of %s and waits for the reply, again and "+
			"again for %v, by lockbench's own load generator; all are connected before "+
			"that. Requests/s, median (least–most of the rounds), and the ratio to those "+
			"directly in the same round.", inBytes(usualSize), j.time),
		header: []string{"clients", "direct"}}
	cpu := &section{title: "Scale: CPU per command",
		before: "Microseconds of processor time that Redis and the proxy together use for each " +
			"request: median (least–most); in brackets after it, how much of it is the " +
			"proxy's. What the clients use is not counted.",
		header: append([]string{"clients"}, allWays...)}
	rateLines := chart.Lines{Title: "GET, as clients grow", Unit: "commands/s", Across: "clients"}
	cpuLines := chart.Lines{Title: "CPU of Redis and proxy together, as clients grow",
		Unit: "µs per command", Across: "clients"}
	for _, name := range allWays {
		rateLines.Series = append(rateLines.Series, chart.Series{Name: name, Color: colorOf(name)})
		cpuLines.Series = append(cpuLines.Series, chart.Series{Name: name, Color: colorOf(name)})
	}
	for _, name := range allWays[1:] {
		rates.header = append(rates.header, name, "ratio")
	}
	for n, clients := range j.clients {
		rateLines.At, cpuLines.At = append(rateLines.At, float64(clients)),
			append(cpuLines.At, float64(clients))
		rateCells, cpuCells := []string{thousands(clients)}, []string{thousands(clients)}
		for way := range allWays {
			i := n*len(allWays) + way
			rate, both := j.results.spread(i, driveRate), j.results.spread(i, bothCPU)
			rateLines.Series[way].Values = append(rateLines.Series[way].Values, rate)
			cpuLines.Series[way].Values = append(cpuLines.Series[way].Values, both)
			rateCells = append(rateCells, rate.Format("%.0f"))
			cpuCell := both.Format("%.1f")
			if way > 0 {
				ratio := j.results.ratio(i, i-way, driveRate)
				rateCells = append(rateCells, ratio.Format("%.2f"))
			}
			if way > 0 && both.Rounds > 0 {
				proxy := j.results.spread(i, func(d *driven) float64 { return us(d.proxyCPU) })
				cpuCell += fmt.Sprintf(" [%.1f]", proxy.Median)
			}
			cpuCells = append(cpuCells, cpuCell)
		}
		rates.row(rateCells...)
		cpu.row(cpuCells...)
	}
	rates.figures = []figure{{"scale", "Requests per second by number of clients, as in the " +
		"table below", rateLines}}
	cpu.figures = []figure{{"scale-cpu", "CPU time per command by number of clients, as in the " +
		"table below", cpuLines}}
	return []*section{rates, cpu}
}
