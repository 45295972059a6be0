package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"lockproxy/cmd/lockbench/stat"
)

// sizing is what the model of docs/scale.md rests on, each job with its own clusters.
type sizing struct {
	shards   *shardCost
	holds    *holdTimes
	memory   *footprint
	takeover *takeover
}

func newSizing(quick bool) *sizing {
	s := &sizing{&shardCost{time: 1500 * time.Millisecond}, &holdTimes{time: 1500 * time.Millisecond},
		&footprint{clients: 1000, locks: 5000}, &takeover{variants: takeovers}}
	if quick {
		s.shards.time, s.holds.time = 700*time.Millisecond, 700*time.Millisecond
		s.memory.clients, s.memory.locks, s.takeover.variants = 300, 2000, takeovers[:1]
	}
	s.shards.results = make([][]*shardRun, len(shardCases))
	s.holds.results = make([][]*holdRun, len(s.holds.cases()))
	s.memory.results = make([]*footprintRun, len(footprints))
	s.takeover.results = make([][]*takeoverRun, len(takeovers))
	return s
}

func sizingDocument(quick bool) *document {
	s, rounds := newSizing(quick), 3
	if quick {
		rounds = 1
	}
	return &document{name: "scale", head: s.head, parts: []*part{
		{rounds: rounds, jobs: []job{s.shards}},
		{rounds: rounds, needs: needs{masters: masterCount, lockproxies: 2}, jobs: []job{s.holds}},
		{rounds: 1, jobs: []job{s.memory}},
		{rounds: min(rounds, 2), jobs: []job{s.takeover}},
	}}
}

// shardCost is LOCK and UNLOCK of locks that nobody waits for, on 1 to 6 masters.
type shardCost struct {
	time    time.Duration
	results [][]*shardRun
}

// shardRun is what a pair costs, µs; what the nodes and proxies use by themselves is not in it.
type shardRun struct {
	redis, proxy float64
	idle         float64 // ms of CPU a second of one node that nothing is asked
	busiest      float64 // pairs of the master that has most, to the mean
}

// shardCases are at the same rate for each master, which six of them reach on two cores: what is
// asked alone costs more than what comes together with other requests. The first is an exception:
// it is one master that is asked for as much as it can.
var shardCases = []struct {
	masters, proxies int
	rest             time.Duration // of a client between two pairs
}{{1, 1, 0}, {1, 1, shardRest}, {2, 1, shardRest}, {3, 1, shardRest}, {6, 1, shardRest},
	{3, 2, shardRest}}

// The cases by name.
const (
	fullShard = iota
	oneShard
	twoShards
	threeShards
	sixShards
	twoProxies
)

const (
	shardRest    = 20 * time.Millisecond
	shardClients = 16   // for each master and proxy
	clientLocks  = 1000 // that each of them takes in turn
	idleTime     = 500 * time.Millisecond
)

func (j *shardCost) title() string        { return "Shards" }
func (j *shardCost) sections() []*section { return nil } // the model's are in the head
func (j *holdTimes) sections() []*section { return nil }
func (j *footprint) sections() []*section { return nil }
func (j *takeover) sections() []*section  { return nil }
func (j *shardCost) figure(i int, of func(*shardRun) float64) stat.Spread {
	return stat.Of(over(j.results[i], of))
}

func (j *shardCost) cases() (names []string) {
	for _, c := range shardCases {
		names = append(names, fmt.Sprintf("%s by %d, a pair each %v", count(c.masters, "master"),
			c.proxies, c.rest))
	}
	return names
}

// wanderer takes one lock after the other.
type wanderer struct {
	*proxyLock
	client, next int
}

func (w *wanderer) acquire() error {
	w.key = fmt.Sprintf("job:%d:%d", w.client, w.next%clientLocks)
	w.next++
	return w.proxyLock.acquire()
}

func wanderers(proxies int) contender {
	return contender{"", func(f *field, n int, _ func(int) string) ([]locker, error) {
		return f.raws(n, f.through(proxies), func(i int, c *rawClient) locker {
			return &wanderer{proxyLock: &proxyLock{rawClient: c, ask: c.number}, client: i}
		})
	}}
}

func (j *shardCost) measure(b *bench, i int) error {
	c := shardCases[i]
	inner, err := b.open(needs{masters: c.masters, lockproxies: c.proxies})
	if err != nil {
		return err
	}
	defer inner.close()
	proxyBefore, err := inner.proxiesCPU()
	if err != nil {
		return err
	}
	used, err := inner.during(func() error { time.Sleep(idleTime); return b.ctx.Err() })
	if err != nil {
		return err
	}
	proxyAfter, err := inner.proxiesCPU()
	if err != nil {
		return err
	}
	before, err := inner.masters.scripts()
	if err != nil {
		return err
	}
	o, err := wanderers(c.proxies).run(inner, shardClients*c.masters*c.proxies,
		j.time+stallAfter, drive{time: j.time, rest: c.rest})
	if err != nil {
		return err
	}
	after, err := inner.masters.scripts()
	if err != nil {
		return err
	}
	times := o.elapsed.Seconds() / idleTime.Seconds()
	most, all := 0, 0
	for node := range after {
		most, all = max(most, after[node]-before[node]), all+after[node]-before[node]
	}
	j.results[i] = append(j.results[i], &shardRun{
		redis:   per(us(o.used.cpu)-times*us(used.cpu), o.total),
		proxy:   per(us(o.proxy)-times*us(proxyAfter-proxyBefore), o.total),
		idle:    ms(used.cpu) / idleTime.Seconds() / float64(c.masters),
		busiest: per(float64(most*c.masters), all)})
	return nil
}

// scripts is how many scripts each node has run.
func (m *masters) scripts() (each []int, err error) {
	for _, node := range m.monitors {
		u, err := node.usage()
		if err != nil {
			return nil, err
		}
		each = append(each, u.scripts)
	}
	return each, nil
}

// holdTimes is one lock that clients of one proxy or of two wait for, each of which holds it for a
// while.
type holdTimes struct {
	time    time.Duration
	results [][]*holdRun // of each time, by the number of proxies
}

type holdRun struct {
	hold  time.Duration // mean, which is longer than asked for
	every time.Duration // from one acquisition to the next
	redis float64       // µs of CPU for each of them
}

// handOver is what is left between two holders, ms.
func (r *holdRun) handOver() float64 { return ms(r.every - r.hold) }

var holds = []time.Duration{0, time.Millisecond, 10 * time.Millisecond}

const holdClients = 20

func (j *holdTimes) title() string { return "Hold time" }
func (j *holdTimes) group() int    { return 2 }

func (j *holdTimes) cases() []string {
	return byWays(holds, []string{"one proxy", "two proxies"})
}

func (j *holdTimes) measure(b *bench, i int) error {
	var held, times atomic.Int64
	inside := func(locker) error {
		began := time.Now()
		if h := holds[i/2]; h > 0 {
			time.Sleep(h)
		}
		held.Add(int64(time.Since(began)))
		times.Add(1)
		return nil
	}
	o, err := lockRaw("", 1+i%2, true).run(b, holdClients, j.time+stallAfter,
		drive{oneLock: true, time: j.time, inside: inside})
	if err != nil {
		return err
	}
	if o.violations > 0 || o.acquired == 0 {
		return fmt.Errorf("%d violations in %d acquisitions", o.violations, o.acquired)
	}
	j.results[i] = append(j.results[i], &holdRun{time.Duration(held.Load() / times.Load()),
		o.elapsed / time.Duration(o.acquired), o.cpu()})
	return nil
}

func (j *holdTimes) figure(hold, proxies int, of func(*holdRun) float64) stat.Spread {
	return stat.Of(over(j.results[2*hold+proxies-1], of))
}

func (s *sizing) head(l *lab) string {
	m := s.model()
	var b strings.Builder
	fmt.Fprintf(&b, sizingHead, machine(), describeOthers(l.others), l.versions.redis,
		l.versions.lockproxy, l.withArgs(), platform())
	for _, t := range []*section{m.constants(), s.checks(m), m.predictions(), m.example()} {
		b.WriteString(t.markdown(""))
	}
	b.WriteString(sizingLimits)
	return b.String()
}
