package main

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/cmd/lockbench/stat"
)

// hitting is clients that read a value that is there.
type hitting struct {
	time    time.Duration
	results [][]float64 // per second, by case, by round
}

const readers = 50

var hitWays = []struct {
	name   string
	direct bool
	words  []string
}{
	{"GET, directly", true, []string{"GET", valueKey}},
	{"GET through lockproxy", false, []string{"GET", valueKey}},
	{"ONCE", false, []string{"ONCE", valueKey, "60"}},
	{"ONCE EARLY", false, []string{"ONCE", valueKey, "60", "EARLY", "60"}},
}

func (j *hitting) title() string { return "A value that is there" }

func (j *hitting) cases() (names []string) {
	for _, w := range hitWays {
		names = append(names, w.name)
	}
	return names
}

func (j *hitting) measure(b *bench, i int) error {
	way := hitWays[i]
	if _, err := b.monitor.do("SET", valueKey, "made", "EX", "3600"); err != nil {
		return err
	}
	f := b.field(maxReply)
	defer f.close()
	addr := f.through(1)
	if way.direct {
		addr = f.direct
	}
	failed := make([]error, readers)
	var all sync.WaitGroup
	var hits atomic.Int64
	began := time.Now()
	if _, err := f.raws(readers, addr, func(n int, c *rawClient) locker {
		all.Go(func() {
			for time.Since(began) < j.time && failed[n] == nil {
				var r reply
				if r, failed[n] = c.do(way.words...); failed[n] == nil && r.text != "made" {
					failed[n] = fmt.Errorf("the value is %q", r.text)
				}
				hits.Add(1)
			}
		})
		return nil
	}); err != nil {
		return err
	}
	all.Wait()
	j.results[i] = append(j.results[i], float64(hits.Load())/j.time.Seconds())
	return errors.Join(failed...)
}

func (j *hitting) sections() []*section {
	s := &section{
		title: "Hits",
		before: fmt.Sprintf("%d clients read a value that is there, one request at a time each.",
			readers),
		header: []string{"", "reads/s", "of GET through lockproxy", "of GET, directly"},
	}
	for i, way := range hitWays {
		r := j.results[i]
		s.row(way.name, stat.Of(r).Format("%.0f"), stat.Of(stat.Ratios(r, j.results[1])).Format("%.2f"),
			stat.Of(stat.Ratios(r, j.results[0])).Format("%.2f"))
	}
	return []*section{s}
}
