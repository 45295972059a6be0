package main

import "fmt"

func (j *cluster) sections() []*section {
	s := &section{title: "Cluster",
		before: fmt.Sprintf("GET and SET by redis-benchmark on a Redis Cluster of %d masters "+
			"without replicas, %s, random keys, values of %s. Directly it knows clusters "+
			"(`--cluster`) and sends each request to its master, all of them in one slot of "+
			"each; through lockproxy (`--upstream redis+cluster://`) it doesn't, and its keys "+
			"are spread over the slots, those of one pipeline too. twemproxy knows no clusters: "+
			"it is in front of %d Redises that know nothing of each other. redis-benchmark has "+
			"%d threads. Requests/s are those that the masters counted within %v; median "+
			"(least–most of the rounds); the ratio is to those directly in the same round. P is "+
			"how many requests a client sends before it waits for the replies. CPU is "+
			"microseconds of processor time of all masters and the proxy together for each "+
			"request; in brackets after it, how much of it is the proxy's.",
			masterCount, count(usualClients, "client"), inBytes(usualSize), masterCount,
			masterCount, j.time),
		header: []string{"", "", "requests/s", "ratio", "CPU"}}
	for w, load := range j.workloads {
		for k, way := range clusterWays {
			direct, through := w*len(clusterWays), w*len(clusterWays)+k
			name, ratio := fmt.Sprintf("%s, P=%d", load.test, load.pipeline), ""
			cpu := j.results.spread(through, clusterCPU)
			cell := cpu.Format("%.1f")
			if k > 0 {
				name, ratio = "", j.results.ratio(through, direct, clusterRate).Format("%.2f")
				if cpu.Rounds > 0 {
					own := j.results.spread(through,
						func(r *clustered) float64 { return us(r.proxyCPU) })
					cell += fmt.Sprintf(" [%.1f]", own.Median)
				}
			}
			s.row(name, way, j.results.spread(through, clusterRate).Format("%.0f"), ratio, cell)
		}
	}
	return []*section{s}
}

func clusterRate(r *clustered) float64 { return r.rate }
func clusterCPU(r *clustered) float64  { return us(r.nodesCPU + r.proxyCPU) }
