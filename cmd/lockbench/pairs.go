package main

import (
	"fmt"
	"time"
)

// pairs is clients that each take and release a lock of their own: nobody waits.
type pairs struct {
	contenders []contender
	clients    int
	time       time.Duration
	results    [][]*outcome
}

// pairsBase is what the others are compared with.
const pairsBase = 2

func newPairs(clients int, d time.Duration) *pairs {
	j := &pairs{clients: clients, time: d, contenders: []contender{
		lockRaw("LOCK + UNLOCK, one proxy, light client", 1, false),
		lockGoRedis("LOCK + UNLOCK, one proxy, go-redis", 1, false),
		bsmDirect("bsm/redislock (go-redis)", 0),
		rueidisDirect(rueidisShared, clients),
	}}
	j.results = make([][]*outcome, len(j.contenders))
	return j
}

func (j *pairs) title() string   { return "Pairs" }
func (j *pairs) cases() []string { return names(j.contenders) }

func (j *pairs) measure(b *bench, i int) error {
	f := b.field(j.time + stallAfter)
	defer f.close()
	lockers, err := j.contenders[i].open(f, j.clients, func(i int) string { return fmt.Sprintf("job:%d", i) })
	if err != nil {
		return err
	}
	o, err := drive{ctx: f.ctx, lockers: lockers, time: j.time}.run(b)
	if err == nil {
		j.results[i] = append(j.results[i], o)
	}
	return err
}

func (j *pairs) section() *section {
	s := &section{
		title: fmt.Sprintf("A lock each, %d clients", j.clients),
		before: fmt.Sprintf("Each client takes and releases a lock of its own, for %v: nobody waits. Ratios are medians over the rounds of the ratio to "+
			"bsm/redislock in the same round.", j.time),
		header: []string{"", "pairs/s", "ratio", "Redis CPU µs/pair", "ratio", "commands/pair", "mean LOCK ms", "p99 LOCK ms"},
	}
	cpu := func(o *outcome) float64 { return per(us(o.used.cpu), o.total) }
	for i, c := range j.contenders {
		rounds := j.results[i]
		rates, cpus := make([]float64, len(rounds)), make([]float64, len(rounds))
		for r, o := range rounds {
			base := j.results[pairsBase][r]
			rates[r], cpus[r] = o.rate()/base.rate(), cpu(o)/cpu(base)
		}
		s.row(c.name,
			spread(rounds, "%.0f", (*outcome).rate),
			fmt.Sprintf("%.2f", median(rates)),
			spread(rounds, "%.1f", cpu),
			fmt.Sprintf("%.2f", median(cpus)),
			middle(rounds, "%.1f", func(o *outcome) float64 { return per(float64(o.used.commands), o.total) }),
			middle(rounds, "%.2f", func(o *outcome) float64 { return ms(o.waits().mean()) }),
			middle(rounds, "%.2f", func(o *outcome) float64 { return ms(o.waits().at(0.99)) }))
	}
	return s
}
