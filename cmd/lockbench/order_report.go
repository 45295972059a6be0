package main

import (
	"fmt"
	"slices"
	"strings"

	"lockproxy/cmd/lockbench/stat"
)

func orderHead(l *lab) string {
	v := l.versions
	return fmt.Sprintf(`# Order across clients

Written by `+"`make bench-order`"+`. Client A's request is on the wire some time before client B's.
MONITOR on Redis says which of them ran first. Each pair of kinds is tried through lockproxy,
through HAProxy, and through lockproxy in front of a cluster of three masters, one of which both
requests go to, in turn, all on one machine, by loopback. A trial counts if B's request was sent
before twice the gap had passed.

- machine: %s; %s
- Redis %s, lockproxy %s%s, HAProxy %s (TCP mode, one thread)
- meanwhile: %s
- lock: LOCK through lockproxy, SET ... NX PX through HAProxy
- first after connect: GET on a connection that was just opened; others are on connections that were
  used before
`, machine(), kernel(), v.redis, v.lockproxy, l.withArgs(), v.haproxy, describeOthers(l.others))
}

// wrongOf is how many of how many trials of a pair went wrong by one of the ways.
func (j *order) wrongOf(c orderCase) (wrong, trials int) {
	if r := j.results[c]; r != nil {
		wrong, trials = r.wrong, r.wrong+r.right
	}
	return wrong, trials
}

// all is how many of how many trials went wrong by one of the ways, over all pairs with a gap.
func (j *order) all(gap, way int) (wrong, trials int) {
	for first := range orderKinds {
		for second := range orderKinds {
			w, n := j.wrongOf(orderCase{first, second, gap, way})
			wrong, trials = wrong+w, trials+n
		}
	}
	return wrong, trials
}

func (j *order) sections() (list []*section) {
	sum := &section{title: "All pairs", before: "Trials in which B's request ran before A's.",
		header: append([]string{"gap"}, orderWays...)}
	for gap, d := range orderGaps {
		cells := []string{d.String()}
		for way := range orderWays {
			wrong, trials := j.all(gap, way)
			cells = append(cells, fmt.Sprintf("%d of %d", wrong, trials))
		}
		sum.row(cells...)
	}
	list = append(list, sum)
	for gap, d := range orderGaps {
		s := &section{title: fmt.Sprintf("A gap of %v", d),
			before: "Trials of 1,000 in which B's request ran before A's: lockproxy / HAProxy / " +
				"lockproxy in front of three masters. A: rows; B: columns.",
			header: []string{"A, then B"}}
		for _, k := range orderKinds {
			s.header = append(s.header, k.name)
		}
		for first, k := range orderKinds {
			cells := []string{k.name}
			for second := range orderKinds {
				var shares []string
				for way := range orderWays {
					shares = append(shares, j.share(orderCase{first, second, gap, way}))
				}
				cells = append(cells, strings.Join(shares, " / "))
			}
			s.row(cells...)
		}
		list = append(list, s)
	}
	return list
}

// share is the trials of 1,000 that went wrong.
func (j *order) share(c orderCase) string {
	wrong, trials := j.wrongOf(c)
	if trials == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", 1000*float64(wrong)/float64(trials))
}

// goals: with each gap, lockproxy is wrong at most as often as HAProxy, also in front of masters.
func (j *order) goals() (list []goal) {
	for gap, d := range orderGaps {
		theirs, m := j.all(gap, slices.Index(orderWays, viaHAProxyThread))
		for way, name := range orderWays {
			ours, n := j.all(gap, way)
			if n == 0 || m == 0 || name == viaHAProxyThread {
				continue
			}
			list = append(list, goal{name: fmt.Sprintf("%s, order with a gap of %v: trials of "+
				"1,000 that went wrong, next to HAProxy's", name, d),
				want: 1000 * float64(theirs) / float64(m),
				got:  stat.Of([]float64{1000 * float64(ours) / float64(n)})})
		}
	}
	return list
}
