package main

import (
	"fmt"
	"slices"
	"time"

	"lockproxy/cmd/lockbench/chart"
	"lockproxy/cmd/lockbench/stat"
)

// pairs is clients that each take and release their own lock: nobody waits.
type pairs struct {
	contest
	time time.Duration
}

// The contenders of which there are goals: those that are measured, and what all are compared with.
const (
	pairsLockproxy = "lockproxy: LOCK + UNLOCK, light client"
	pairsShared    = "lockproxy: LOCK + UNLOCK, rueidis, one client for all"
	pairsBase      = "bsm/redislock (go-redis)"
	// pairsBehind is what any process in between costs at least on this machine.
	pairsBehind = "bsm/redislock (go-redis) through HAProxy"
)

// pairClients is how many clients have a lock each.
const pairClients = 50

func newPairs(clients int, d time.Duration) *pairs {
	return &pairs{time: d, contest: newContest(clients,
		lockRaw(pairsLockproxy, 1, false),
		lockGoRedis("lockproxy: LOCK + UNLOCK, go-redis", 1, false),
		lockRueidis(pairsShared),
		bsmDirect(pairsBase, 0),
		bsmBehind(pairsBehind, 0),
		rueidisDirect(rueidisShared, clients),
	)}
}

func pairsPart(quick bool) *part {
	needed := needs{lockproxies: 1, targets: []string{viaHAProxy}}
	if quick {
		return &part{rounds: 2, needs: needed, others: true,
			jobs: []job{newPairs(pairClients, time.Second), newAlone(time.Second)}}
	}
	return &part{rounds: 5, needs: needed, others: true,
		jobs: []job{newPairs(pairClients, 2*time.Second), newAlone(time.Second)}}
}

func (j *pairs) title() string { return "Pairs" }

func (j *pairs) measure(b *bench, i int) error {
	return j.lock(b, i, j.time+stallAfter, drive{time: j.time})
}

// ratio is of a figure to that of the base in the same round.
func (j *pairs) ratio(i int, figure func(*outcome) float64) stat.Spread {
	return j.results.ratio(i, slices.Index(j.cases(), pairsBase), figure)
}

func (j *pairs) sections() []*section {
	s := &section{
		title: fmt.Sprintf("A lock each, %d clients", j.clients),
		before: fmt.Sprintf("Each client takes and releases its own lock, for %v: nobody "+
			"waits. Ratios are medians over the rounds (least–most) of the ratio to "+
			"bsm/redislock in the same round. Those that are not lockproxy talk to Redis "+
			"directly, or through HAProxy.",
			j.time),
		header: []string{"", "pairs/s", "ratio", "Redis CPU µs/pair", "ratio", "commands/pair",
			"mean LOCK ms", "p99 LOCK ms"},
	}
	bars := chart.Bars{Title: fmt.Sprintf("LOCK and UNLOCK of a lock each, %d clients", j.clients),
		Unit: "ratio to bsm/redislock", Verb: "%.2f", Mark: 1,
		Groups: []string{"pairs/s (more is better)", "Redis CPU per pair (less is better)"}}
	bars.Series = []chart.Series{{Name: "lockproxy, light client", Color: chart.Blue},
		{Name: "lockproxy, go-redis", Color: chart.Purple},
		{Name: "lockproxy, rueidis", Color: chart.Orange}, {Name: "bsm/redislock",
			Color: chart.Plain}, {Name: "bsm/redislock, HAProxy", Color: chart.Red},
		{Name: "rueidislock", Color: chart.Green}}
	for i, c := range j.contenders {
		rounds := j.results[i]
		rate, cpu := j.ratio(i, (*outcome).rate), j.ratio(i, (*outcome).cpu)
		s.row(c.name,
			spread(rounds, "%.0f", (*outcome).rate),
			rate.Format("%.2f"),
			spread(rounds, "%.1f", (*outcome).cpu),
			cpu.Format("%.2f"),
			middle(rounds, "%.1f", (*outcome).commands),
			middle(rounds, "%.2f", (*outcome).meanWait),
			middle(rounds, "%.2f", (*outcome).p99Wait))
		bars.Series[i].Values = []stat.Spread{rate, cpu}
	}
	s.figures = []figure{{"pairs", bars.Title +
		", as ratios to bsm/redislock, from the table below", bars}}
	return []*section{s, j.cores()}
}

func (j *pairs) goals() (list []goal) {
	for _, way := range []struct{ contender, how string }{{pairsLockproxy, "a connection each"},
		{pairsShared, "one connection for all"}} {
		i := slices.Index(j.cases(), way.contender)
		list = append(list,
			goal{name: fmt.Sprintf("LOCK + UNLOCK pairs/s, %d clients with a lock each, %s: "+
				"ratio to bsm/redislock directly", j.clients, way.how),
				want: 0.8, atLeast: true, got: j.ratio(i, (*outcome).rate)},
			goal{name: "Redis CPU for each such pair, " + way.how + ": ratio to bsm/redislock",
				want: 1, got: j.ratio(i, (*outcome).cpu)})
	}
	return list
}
