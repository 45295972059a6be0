package main

import (
	"fmt"

	"lockproxy/cmd/lockbench/stat"
)

func (j *cluster) sections() []*section {
	s := &section{title: "Cluster",
		before: fmt.Sprintf("GET and SET by redis-benchmark on a Redis Cluster of %d masters "+
			"without replicas, %s, random keys, values of %s. Directly it knows clusters "+
			"(`--cluster`) and sends each request to its master, all of them in one slot of "+
			"each; through lockproxy (`--upstream redis+cluster://`) it doesn't, and its keys "+
			"are spread over the slots, those of one pipeline too. Both ways it has %d threads. "+
			"Requests/s are those that the masters counted within %v; median "+
			"(least–most of the rounds); the ratio is to those directly in the same round. P is "+
			"how many requests a client sends before it waits for the replies. CPU is "+
			"microseconds of processor time of all masters and lockproxy together for each "+
			"request; in brackets after it, how much of it is lockproxy's.",
			masterCount, count(usualClients, "client"), inBytes(usualSize), masterCount, j.time),
		header: []string{"", "direct, requests/s", "lockproxy, requests/s", "ratio", "direct, CPU",
			"lockproxy, CPU"}}
	for w, load := range j.workloads {
		direct, through := j.figures(w, 0, clusterRate), j.figures(w, 1, clusterRate)
		cpu := stat.Of(j.figures(w, 1, clusterCPU))
		cell := cpu.Format("%.1f")
		if cpu.Rounds > 0 {
			cell += fmt.Sprintf(" [%.1f]",
				stat.Of(j.figures(w, 1, func(r *clustered) float64 {
					return us(r.lockproxy)
				})).Median)
		}
		s.row(fmt.Sprintf("%s, P=%d", load.test, load.pipeline), stat.Of(direct).Format("%.0f"),
			stat.Of(through).Format("%.0f"),
			stat.Of(stat.Ratios(through, direct)).Format("%.2f"),
			stat.Of(j.figures(w, 0, clusterCPU)).Format("%.1f"), cell)
	}
	return []*section{s}
}

// figures of each round, for a workload by one of the ways.
func (j *cluster) figures(w, way int, of func(*clustered) float64) []float64 {
	return over(j.results[w][way], func(r *clustered) float64 {
		if r == nil {
			return stat.Failed
		}
		return of(r)
	})
}

func clusterRate(r *clustered) float64 { return r.rate }
func clusterCPU(r *clustered) float64  { return us(r.nodesCPU + r.lockproxy) }
