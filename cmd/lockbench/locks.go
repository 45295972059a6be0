package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The contenders that the others are compared with.
const (
	bsmDirect     = "bsm/redislock (go-redis)"
	rueidisDirect = "rueidislock"
)

// pairsSuite is clients that each take and release a lock of their own.
func pairsSuite(quick bool) *suite {
	run, rounds := 2*time.Second, 5
	if quick {
		run, rounds = 500*time.Millisecond, 3
	}
	return &suite{name: "pairs", title: "A lock each", rounds: rounds, others: true,
		needs: needs{haproxy: true}, base: bsmDirect,
		about: fmt.Sprintf("Each client takes and releases its own lock, again and again for %v, so "+
			"no client waits. bsm/redislock, rueidislock and the recipe use Redis directly unless "+
			"a row says otherwise. A light client is lockbench's own. Processor time is µs for "+
			"each pair.", run),
		columns: lockColumns("pairs/s"),
		cases: func(l *lab) (list []benchCase) {
			var ways []contender
			for _, p := range l.proxies {
				ways = append(ways,
					lockBy(p.name+": LOCK", light(p.name)),
					lockBy(p.name+": LOCK … WAIT", light(p.name), "WAIT", "60"),
					lockBy(p.name+": LOCK, go-redis", byGoRedis(p.name)),
					lockBy(p.name+": LOCK, rueidis", byRueidis(p.name)))
			}
			ways = append(ways, setLocks("SET NX recipe, light client", viaDirect, 0),
				bsmLocks(bsmDirect, viaDirect, 0),
				bsmLocks("bsm/redislock through HAProxy", viaHAProxy, 0),
				rueidisLocks(rueidisDirect, viaDirect))
			for _, n := range []int{1, 50} {
				for _, c := range ways {
					list = append(list, benchCase{count(n, "client"), c.name,
						func(b *bench) (figures, error) { return c.run(b, n, false, run) }})
				}
			}
			return list
		}}
}

// hotSuite is many clients that want one lock.
func hotSuite(quick bool) *suite {
	const clients, pause = 100, 10 * time.Millisecond
	run, rounds := 2*time.Second, 3
	if quick {
		run, rounds = time.Second, 1
	}
	return &suite{name: "hot", title: "One lock that many want", rounds: rounds, others: true,
		needs: needs{haproxy: true, second: true}, base: rueidisDirect,
		about: fmt.Sprintf("%d clients take and release one lock, again and again for %v. "+
			"Fairness is the ratio of the fewest turns of a client to the most. Violations are "+
			"clients that had the lock while another client had it. Stalled clients still had no "+
			"lock %v after the end, though no client used it. Processor time is µs for each turn. "+
			"All clients share one locker of rueidislock. Its TryNextAfter is raised from 20 ms: a "+
			"busy machine exceeds these, and rueidislock then drops the lock and may wait forever.",
			clients, run, stallAfter),
		columns: append(lockColumns("turns/s"), column{"longest wait ms", "%.0f", false},
			column{"fairness", "%.2f", false}, column{"violations", "%.0f", false},
			column{"stalled", "%.0f", false}),
		cases: func(l *lab) (list []benchCase) {
			var ways []contender
			for _, p := range l.proxies {
				ways = append(ways,
					lockBy(p.name+": LOCK … WAIT", light(p.name), "WAIT", "0"),
					lockBy(p.name+" and another", light(p.name, p.name+viaSecond), "WAIT", "0"))
			}
			ways = append(ways, rueidisLocks(rueidisDirect, viaDirect),
				rueidisLocks("rueidislock through HAProxy", viaHAProxy),
				bsmLocks("bsm/redislock, tries every 10 ms", viaDirect, pause),
				setLocks("SET NX recipe, tries at once", viaDirect, 0),
				setLocks("SET NX recipe, tries every 10 ms", viaDirect, pause))
			for _, c := range ways {
				list = append(list, benchCase{count(clients, "client"), c.name,
					func(b *bench) (figures, error) { return c.run(b, clients, true, run) }})
			}
			return list
		}}
}

func lockColumns(rate string) []column {
	return []column{{rate, "%.0f", true}, {"LOCK p50 ms", "%.2f", false},
		{"LOCK p99 ms", "%.2f", false}, {"UNLOCK p99 ms", "%.2f", false},
		{"Redis CPU", "%.1f", true}, {"proxy CPU", "%.1f", false}, {"commands", "%.1f", false}}
}

// stallAfter is how long after the end of a run a client that still waits may take to get its lock.
const stallAfter = 10 * time.Second

// contest is one run of a contender.
type contest struct {
	end        time.Time
	oneLock    bool
	inside     sync.Mutex // held by the client that has the one lock
	violations atomic.Int64
	stalled    atomic.Int64
}

// turnsTaken are the turns of one client in a run.
type turnsTaken struct {
	within          int // the time of the run; clients that wait at its end go on to their turn
	waits, releases durations
	err             error
}

// run lets n clients take and release locks for a time: one lock, or a lock each.
func (c contender) run(b *bench, n int, oneLock bool, d time.Duration) (figures, error) {
	ctx, cancel := context.WithTimeout(b.ctx, d+2*stallAfter)
	f := &field{bench: b, ctx: ctx, closers: []func(){cancel}}
	defer f.close()
	lockers, err := c.open(f, n, func(i int) string {
		if oneLock {
			return "job"
		}
		return fmt.Sprintf("job:%d", i)
	})
	if err != nil {
		return nil, err
	}
	for _, l := range lockers { // clients connect and load scripts before the clock runs
		if err := errors.Join(l.acquire(), l.release()); err != nil {
			return nil, err
		}
	}
	r := &contest{oneLock: oneLock}
	taken := make([]turnsTaken, n)
	before, err := f.proxiesCPU()
	if err != nil {
		return nil, err
	}
	used, _, err := b.during("", func() error {
		r.end = time.Now().Add(d)
		var running sync.WaitGroup
		for i, l := range lockers {
			running.Go(func() { r.compete(l, &taken[i]) })
		}
		running.Wait()
		for _, t := range taken {
			if t.err != nil {
				return t.err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	after, err := f.proxiesCPU()
	result := r.figures(d, taken, used)
	if c.proxied {
		result["proxy CPU"] = each(us(after-before), int(result["turns"]))
	}
	return result, err
}

// proxiesCPU is the processor time of all lockproxies: in a run of locks only one kind works.
func (f *field) proxiesCPU() (total time.Duration, err error) {
	for _, s := range f.lockproxies {
		used, err := s.process().cpu()
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}

// compete is one client's run.
func (r *contest) compete(l locker, t *turnsTaken) {
	for again := true; again; again = time.Now().Before(r.end) { // at least once
		asked := time.Now()
		if err := l.acquire(); err != nil {
			if time.Since(r.end) >= stallAfter {
				r.stalled.Add(1)
			} else {
				t.err = err
			}
			return
		}
		had := time.Now()
		t.waits = append(t.waits, had.Sub(asked))
		if r.oneLock {
			r.meet()
		}
		if t.err = l.release(); t.err != nil {
			return
		}
		done := time.Now()
		t.releases = append(t.releases, done.Sub(had))
		if done.Before(r.end) {
			t.within++
		}
	}
}

// meet is work under the lock, long enough to meet another client that has the lock, too.
func (r *contest) meet() {
	if !r.inside.TryLock() {
		r.violations.Add(1)
		return
	}
	runtime.Gosched()
	r.inside.Unlock()
}

func (r *contest) figures(d time.Duration, taken []turnsTaken, used usage) figures {
	var waits, releases durations
	within, fewest, most := 0, taken[0].within, 0
	for _, t := range taken {
		within += t.within
		fewest, most = min(fewest, t.within), max(most, t.within)
		waits, releases = append(waits, t.waits...), append(releases, t.releases...)
	}
	slices.Sort(waits)
	slices.Sort(releases)
	rate := float64(within) / d.Seconds()
	return figures{"pairs/s": rate, "turns/s": rate, "LOCK p50 ms": ms(waits.at(0.5)),
		"LOCK p99 ms": ms(waits.at(0.99)), "UNLOCK p99 ms": ms(releases.at(0.99)),
		"longest wait ms": ms(waits.at(1)), "fairness": each(float64(fewest), most),
		"violations": float64(r.violations.Load()), "stalled": float64(r.stalled.Load()),
		"turns": float64(len(waits)), "Redis CPU": each(us(used.cpu), len(waits)),
		"commands": each(float64(used.commands), len(waits))}
}
