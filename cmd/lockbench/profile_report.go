package main

import (
	"fmt"
)

func (j *profiled) sections() []*section {
	s := &section{
		title: "What lockproxy does with its time",
		before: fmt.Sprintf("Of lockproxy's processor time in %v of each workload, by Go's "+
			"profiler (`--admin-pprof`), the shares in %%. Requests are what is done with them "+
			"between "+
			"reading and sending on: framing, routing, for LOCK and UNLOCK all that they need; "+
			"replies are reading and cutting those of Redis. What it reads and writes is the "+
			"kernel's work, as is most of what it does in all: the column of system calls cuts "+
			"across the others. Where a request costs Redis little, as one of many in a "+
			"pipeline does, or a client waits for each reply alone, that is what a ratio below 1 "+
			"is made of.", j.time),
		header: []string{"", "CPU µs/request"},
	}
	for _, name := range activityNames {
		s.header = append(s.header, name)
	}
	s.header = append(s.header, "in system calls")
	for i, name := range j.cases() {
		rounds := j.results[i]
		row := []string{name, middle(rounds, "%.2f",
			func(b *breakdown) float64 { return us(b.perRequest) })}
		for a := range activities {
			row = append(row, middle(rounds, "%.0f",
				func(b *breakdown) float64 { return 100 * b.shares[a] }))
		}
		s.row(append(row, middle(rounds, "%.0f",
			func(b *breakdown) float64 { return 100 * b.calls }))...)
	}
	return []*section{s}
}
