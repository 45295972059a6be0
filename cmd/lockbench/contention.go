package main

import (
	"fmt"
	"time"

	"lockproxy/cmd/lockbench/chart"
	"lockproxy/cmd/lockbench/stat"
)

// contention is many clients that want one lock, again and again.
type contention struct {
	contest
	time time.Duration
}

const (
	rueidisShared = "rueidislock, one locker for all"
	rueidisEach   = "rueidislock, a locker each"
	// rueidisHAProxy is what any process in between costs.
	rueidisHAProxy = "rueidislock, one locker for all, through HAProxy"
)

func newContention(clients int, d, pause time.Duration) *contention {
	return &contention{time: d, contest: newContest(clients,
		lockRaw("LOCK WAIT, one proxy, light client", 1, true),
		lockRaw("LOCK WAIT, two proxies, light client", 2, true),
		lockGoRedis("LOCK WAIT, one proxy, go-redis", 1, true),
		lockGoRedis("LOCK WAIT, two proxies, go-redis", 2, true),
		rueidisDirect(rueidisShared, clients),
		rueidisAt(rueidisHAProxy, clients, behindHAProxy),
		rueidisDirect(rueidisEach, 1),
		bsmDirect(fmt.Sprintf("bsm/redislock, linear backoff %v", pause), pause),
		setnxDirect("SETNX recipe (L1), no sleep, light client", 0),
		setnxDirect(fmt.Sprintf("SETNX recipe (L1), sleep %v, light client", pause), pause),
	)}
}

func (j *contention) title() string { return "Contention" }

func (j *contention) measure(b *bench, i int) error {
	return j.lock(b, i, j.time+stallAfter, drive{oneLock: true, time: j.time})
}

// rueidis is the faster of the two ways to use rueidislock.
func (j *contention) rueidis() (best int) {
	rate := func(i int) float64 { return stat.Median(over(j.results[i], (*outcome).rate)) }
	best = -1
	for i, c := range j.contenders {
		if (c.name == rueidisShared || c.name == rueidisEach) &&
			(best < 0 || rate(i) > rate(best)) {
			best = i
		}
	}
	return best
}

func (j *contention) sections() []*section {
	best := j.rueidis()
	s := &section{
		title: "One lock, " + fmt.Sprint(j.clients) + " clients, hold time 0",
		before: fmt.Sprintf("Each client takes the lock and releases it, again and again for %v; "+
			"the lock is on one Redis for all. Acquisitions/s: median "+
			"(least–most of the rounds); ratio: the median over the rounds of acquisitions/s to "+
			"those of %q in the same round, the faster of the two ways to use "+
			"rueidislock, which is set up as its README says for one Redis, but with "+
			"TryNextAfter raised from 20 ms, which a busy machine exceeds: then it drops "+
			"the lock and may wait forever. Scripts, commands (those that scripts call as well) "+
			"and Redis CPU are per acquisition. A violation is two clients inside "+
			"at once; stalled are clients that %v after the end of a run had still not been "+
			"given the lock, though nobody used it: both in all rounds.",
			j.time, j.contenders[best].name, stallAfter),
		header: []string{"", "acquisitions/s", "ratio to rueidislock", "fewest/most per client",
			"mean wait ms", "p99 ms", "longest ms", "longest/mean",
			"scripts", "commands", "Redis CPU µs", "violations", "stalled"},
	}
	rates := chart.Rows{Title: "One lock, " + fmt.Sprint(j.clients) +
		" clients: how often it changes hands", Unit: "acquisitions/s", Verb: "%.0f"}
	waits := chart.Rows{Title: "One lock, " + fmt.Sprint(j.clients) +
		" clients: the longest that one of them waits", Unit: "ms", Verb: "%.0f", Log: true}
	for i, c := range j.contenders {
		rounds := j.results[i]
		rates.Rows = append(rates.Rows, chart.Row{Name: c.name, Color: colorOf(c.name),
			Value: stat.Of(over(rounds, (*outcome).rate))})
		waits.Rows = append(waits.Rows, chart.Row{Name: c.name, Color: colorOf(c.name),
			Value: stat.Of(over(rounds, (*outcome).longestWait))})
		ratios := make([]float64, len(rounds))
		violations, stalled := 0, 0
		for r, o := range rounds {
			ratios[r] = o.rate() / j.results[best][r].rate()
			violations += o.violations
			stalled += o.stalled()
		}
		s.row(c.name,
			spread(rounds, "%.0f", (*outcome).rate),
			fmt.Sprintf("%.2f", stat.Median(ratios)),
			middle(rounds, "%.2f", (*outcome).fairness),
			middle(rounds, "%.1f", (*outcome).meanWait),
			middle(rounds, "%.1f", (*outcome).p99Wait),
			middle(rounds, "%.1f", (*outcome).longestWait),
			middle(rounds, "%.1f", func(o *outcome) float64 {
				return o.longestWait() / o.meanWait()
			}),
			middle(rounds, "%.2f", (*outcome).scripts),
			middle(rounds, "%.1f", (*outcome).commands),
			middle(rounds, "%.1f", (*outcome).cpu),
			fmt.Sprint(violations), fmt.Sprint(stalled))
	}
	s.figures = []figure{{"rate", "Acquisitions per second, as in the table below", rates},
		{"wait", "The longest wait, as in the table below", waits}}
	return []*section{s}
}
