package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// client is what one client of a run has met.
type client struct {
	stalled  bool
	acquired int // within the time of the run; those still waiting at its end go on to their turn
	waits    []time.Duration
	releases []time.Duration
}

// outcome is one run of a contender.
type outcome struct {
	clients    []client
	elapsed    time.Duration // until the time was over, or the jobs were done
	acquired   int           // within elapsed
	total      int           // with those that were still waiting then
	violations int
	used       usage
	client     time.Duration // processor time of lockbench, which is the clients
	proxy      time.Duration // of all lockproxies
}

// errStalled ends the wait of a client that can't be in earnest: the run is long over.
var errStalled = errors.New("a client waits for a lock that nobody has")

// stallAfter is how long after the end of a run those who still wait can take to have their turn.
const stallAfter = 10 * time.Second

// drive lets lockers take and release until more says no. inside can be nil: the work under the
// lock. oneLock says that all lockers compete for the same one, and looks whether two ever have it.
type drive struct {
	ctx     context.Context // of the run
	lockers []locker
	oneLock bool
	time    time.Duration // of the run; 0 if jobs end it
	jobs    int
	inside  func(l locker) error
	rest    time.Duration // of a client after each release
}

func (d drive) run(b *bench) (*outcome, error) {
	if err := d.warm(); err != nil {
		return nil, err
	}
	o := &outcome{clients: make([]client, len(d.lockers))}
	before, err := b.proxiesCPU()
	if err != nil {
		return nil, err
	}
	own := ownCPU()
	o.used, err = b.during(func() error { return d.all(o) })
	if err != nil {
		return nil, err
	}
	o.client = ownCPU() - own
	after, err := b.proxiesCPU()
	if err != nil {
		return nil, err
	}
	o.proxy = after - before
	for _, c := range o.clients {
		o.acquired += c.acquired
		o.total += len(c.waits)
	}
	return o, nil
}

// warm makes connections and loads scripts before the clock runs, one client after the other.
func (d drive) warm() error {
	for _, l := range d.lockers {
		if err := l.acquire(); err != nil {
			return err
		}
		if err := l.release(); err != nil {
			return err
		}
	}
	return nil
}

// each calls for every locker, all at once.
func (d drive) each(call func(i int) error) error {
	errs := make([]error, len(d.lockers))
	var wg sync.WaitGroup
	for i := range d.lockers {
		wg.Go(func() { errs[i] = call(i) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err // one says as much as a hundred
		}
	}
	return nil
}

func (d drive) all(o *outcome) error {
	var inside sync.Mutex
	var violations, taken atomic.Int64
	start := time.Now()
	more := func() bool { return time.Since(start) < d.time }
	if d.jobs > 0 {
		more = func() bool { return taken.Add(1) <= int64(d.jobs) }
	}
	err := d.each(func(i int) error {
		c := &o.clients[i]
		for more() {
			err := d.once(i, c, &inside, &violations)
			if err != nil && context.Cause(d.ctx) == errStalled {
				c.stalled = true
				return nil
			}
			if err != nil {
				return err
			}
			if d.jobs > 0 || time.Since(start) < d.time {
				c.acquired++
			}
			time.Sleep(d.rest)
		}
		return nil
	})
	o.violations = int(violations.Load())
	o.elapsed = d.time
	if d.jobs > 0 {
		o.elapsed = time.Since(start)
	}
	return err
}

// once takes the lock, works and releases it.
func (d drive) once(i int, c *client, inside *sync.Mutex, violations *atomic.Int64) error {
	asked := time.Now()
	if err := d.lockers[i].acquire(); err != nil {
		return err
	}
	c.waits = append(c.waits, time.Since(asked))
	alone := d.oneLock && inside.TryLock()
	if d.oneLock && !alone {
		violations.Add(1)
	}
	if d.inside != nil {
		if err := d.inside(d.lockers[i]); err != nil {
			return err
		}
	}
	if alone {
		inside.Unlock()
	}
	done := time.Now()
	err := d.lockers[i].release()
	c.releases = append(c.releases, time.Since(done))
	return err
}

func (o *outcome) stalled() (n int) {
	for _, c := range o.clients {
		if c.stalled {
			n++
		}
	}
	return n
}

// What one acquisition and its release took: of scripts, commands and CPU of Redis, in µs.
func (o *outcome) scripts() float64  { return per(float64(o.used.scripts), o.total) }
func (o *outcome) commands() float64 { return per(float64(o.used.commands), o.total) }
func (o *outcome) cpu() float64      { return per(us(o.used.cpu), o.total) }

// The waits of all clients, in ms.
func (o *outcome) meanWait() float64    { return ms(o.waits().mean()) }
func (o *outcome) p99Wait() float64     { return ms(o.waits().at(0.99)) }
func (o *outcome) longestWait() float64 { return ms(o.waits().longest()) }

func (o *outcome) rate() float64 { return float64(o.acquired) / o.elapsed.Seconds() }

// share is how often the client that had the lock least often had it, and the one that had it most
// often.
func (o *outcome) share() (fewest, most int) {
	counts := over(o.clients, func(c client) int { return c.acquired })
	return slices.Min(counts), slices.Max(counts)
}

func (o *outcome) fairness() float64 {
	fewest, most := o.share()
	return per(float64(fewest), most)
}

// times gathers durations of all clients, sorted.
func (o *outcome) times(of func(client) []time.Duration) durations {
	var all durations
	for _, c := range o.clients {
		all = append(all, of(c)...)
	}
	slices.Sort(all)
	return all
}

func (o *outcome) waits() durations {
	return o.times(func(c client) []time.Duration { return c.waits })
}

func (o *outcome) releases() durations {
	return o.times(func(c client) []time.Duration { return c.releases })
}

// durations are sorted.
type durations []time.Duration

func (d durations) mean() time.Duration {
	var sum time.Duration
	for _, one := range d {
		sum += one
	}
	return sum / time.Duration(max(len(d), 1))
}

// at is the quantile q, 0 to 1.
func (d durations) at(q float64) time.Duration {
	if len(d) == 0 {
		return 0
	}
	return d[int(q*float64(len(d)-1))]
}

func (d durations) longest() time.Duration { return d.at(1) }
