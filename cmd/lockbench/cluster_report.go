package main

import "fmt"

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
		direct, through := w*len(clusterWays), w*len(clusterWays)+1
		cpu := j.results.spread(through, clusterCPU)
		cell := cpu.Format("%.1f")
		if cpu.Rounds > 0 {
			own := j.results.spread(through, func(r *clustered) float64 { return us(r.lockproxy) })
			cell += fmt.Sprintf(" [%.1f]", own.Median)
		}
		s.row(fmt.Sprintf("%s, P=%d", load.test, load.pipeline),
			j.results.spread(direct, clusterRate).Format("%.0f"),
			j.results.spread(through, clusterRate).Format("%.0f"),
			j.results.ratio(through, direct, clusterRate).Format("%.2f"),
			j.results.spread(direct, clusterCPU).Format("%.1f"), cell)
	}
	return []*section{s}
}

func clusterRate(r *clustered) float64 { return r.rate }
func clusterCPU(r *clustered) float64  { return us(r.nodesCPU + r.lockproxy) }
