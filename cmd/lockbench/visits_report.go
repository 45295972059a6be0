package main

import (
	"fmt"
	"slices"

	"lockproxy/cmd/lockbench/stat"
)

func visitRate(r *visited) float64 { return r.rate }

// run is the case of a kind of visits by one of the ways.
func (j *visits) run(k, way int) int { return k*len(allWays) + way }

func (j *visits) sections() []*section {
	s := &section{title: "Connect, GET, close", before: fmt.Sprintf("Clients that connect, ask for "+
		"one value and close, again and again for %v, as pages of PHP do; some log in first, and "+
		"choose a database; in the last rows Redis is reached with TLS, by the clients themselves "+
		"or by a proxy that they reach without. Visits/s, median (least–most of the rounds), and "+
		"of lockproxy the ratio to HAProxy and to directly in the same round. The last column is "+
		"how many connections Redis gets for each visit through lockproxy. twemproxy knows one "+
		"login for all, no databases, and no TLS.", j.time),
		header: append(slices.Clone(allWays), "lockproxy ÷ HAProxy", "lockproxy ÷ direct",
			"connections each")}
	s.header = append([]string{""}, s.header...)
	for k, kind := range j.kinds {
		row := []string{kind.String()}
		for way := range allWays {
			row = append(row, j.results.spread(j.run(k, way), visitRate).Format("%.0f"))
		}
		s.row(append(row, j.ratio(k, viaHAProxy).Format("%.2f"), j.ratio(k, viaDirect).Format("%.2f"),
			j.results.spread(j.run(k, slices.Index(allWays, viaLockproxy)),
				func(r *visited) float64 { return r.connects }).Format("%.2f"))...)
	}
	return []*section{s}
}

// ratio is of the visits through lockproxy to those by another way.
func (j *visits) ratio(k int, to string) stat.Spread {
	return j.results.ratio(j.run(k, slices.Index(allWays, viaLockproxy)),
		j.run(k, slices.Index(allWays, to)), visitRate)
}

func (j *visits) goals() (list []goal) {
	for k, kind := range j.kinds {
		want, ok := map[visitLogin]float64{noLogin: 1.5, tlsUpstream: 3}[kind.login]
		if ok && kind.clients > 1 {
			list = append(list, goal{name: fmt.Sprintf("Connect, GET, close, %v: ratio to "+
				"HAProxy", kind), want: want, atLeast: true,
				got: j.ratio(k, viaHAProxy)})
		}
	}
	return list
}
