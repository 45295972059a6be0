//go:build linux

package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"lockproxy/internal/test/faults/check"
	"lockproxy/internal/test/faults/client"
	"lockproxy/internal/test/faults/history"
)

// Result is the outcome of a round.
type Result struct {
	Plan    Plan
	History history.History
	Report  check.Report
}

// Load is how many clients of each kind work, and how hard.
type Load struct {
	Lockers   int
	Sharers   int // lockers of one more lock, which most of them share
	Pairs     int // lockers of two more locks, which they take together at times
	Places    int // clients that ask for places in lines, and as many that wait there
	Waiting   int // owners of two connections that wait for each other
	Many      int // owners of many connections
	Askers    int // at most mostAskers
	Noise     int
	Unblocked int // clients whose waits are ended
	Logins    int // clients of the user whose passwords rotate
	Owners    int // how many of 100 LOCKs name an owner
	Think     time.Duration
	Bounds    check.Bounds
}

// The timeouts of locks.
const (
	shortest = 300 * time.Millisecond
	longest  = time.Second
)

// DefaultLoad is moderate: the machine is shared.
func DefaultLoad() Load {
	return Load{Lockers: 14, Sharers: 6, Pairs: 4, Places: 4, Waiting: 5, Many: 2, Askers: 6, Noise: 2,
		Unblocked: 3, Logins: 4,
		Owners: 60, Think: 60 * time.Millisecond, Bounds: check.DefaultBounds()}
}

// Run carries out a plan while clients work, and judges what they saw. An error is of the bench,
// not of the service. When ctx ends, Run stops early and judges what was seen so far.
func (b *Bench) Run(ctx context.Context, p Plan, load Load) (r Result, err error) {
	r.Plan = p
	if err := b.fresh(ctx, p); err != nil {
		return r, err
	}
	c := b.newCrowd(p, load)
	b.notes = c.notes
	b.recordPasswords()
	working, stop := context.WithCancel(ctx)
	defer stop()
	stopBeats := b.measure(ctx, c)
	c.start(working, b)
	b.carryOut(working, p)
	sleep(working, p.Quiet)
	stop()
	c.finish(b)
	if ctx.Err() == nil {
		b.probe(c)
	}
	stopBeats()
	b.findLists(c)
	b.mu.Lock()
	r.History.Faults = slices.Clone(b.faults)
	b.mu.Unlock()
	r.History.Ops = append(c.notes.Drain(), c.far.Drain()...)
	load.Bounds.Grant += 6 * max(p.Away, p.Far)
	r.Report = check.Check(r.History, load.Bounds)
	r.Report.Violations = append(r.Report.Violations, b.processes()...)
	return r, nil
}

// measure pings each proxy until it is told to stop.
func (b *Bench) measure(ctx context.Context, c *crowd) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var measuring sync.WaitGroup
	for i, at := range b.straight() {
		m := &client.Metronome{ID: beatClients + i, Target: at, Notes: c.notes,
			Distance: b.distance[at.Proxy]}
		measuring.Go(func() { m.Run(ctx) })
	}
	return func() {
		cancel()
		measuring.Wait()
	}
}

// carryOut does all faults of a plan, each at its time, and returns when the last is over.
func (b *Bench) carryOut(ctx context.Context, p Plan) {
	start := time.Now()
	var goroutines sync.WaitGroup
	things := map[string]*sync.Mutex{} // a target has one fault at a time, however long that takes
	for _, f := range p.Faults {
		thing := f.thing()
		if things[thing] == nil {
			things[thing] = &sync.Mutex{}
		}
		mu := things[thing]
		sleep(ctx, time.Until(start.Add(f.At)))
		if ctx.Err() != nil {
			break
		}
		goroutines.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			b.inflict(ctx, f)
		})
	}
	goroutines.Wait()
	sleep(ctx, time.Until(start.Add(p.Active)))
}

// inflict does one fault and records it.
func (b *Bench) inflict(ctx context.Context, f Fault) {
	k := kinds[f.Kind]
	f.breaks = k.breaks
	b.doing.Store(f.Kind)
	from := history.Now()
	k.do(b, ctx, &f)
	to := history.Now() + f.lasts.Nanoseconds()
	b.doing.Store("")
	b.mu.Lock()
	defer b.mu.Unlock()
	toProxies, toClients := f.concerns()
	b.faults = append(b.faults, history.Fault{Kind: f.Kind, Target: fmt.Sprint(k.on, " ", f.Target),
		Detail: f.Detail, From: from, To: to, Breaks: f.breaks,
		Proxies: toProxies, Clients: toClients, Longer: f.longer.Nanoseconds()})
}

// Doing is the fault that began last, for people; "" if there is none.
func (b *Bench) Doing() string {
	name, _ := b.doing.Load().(string)
	return name
}

// probe asks for every lock through every proxy, now that all faults are over.
func (b *Bench) probe(c *crowd) {
	orphans := false // a lock that a dead client may keep isn't asked for
	b.mu.Lock()
	for _, f := range b.faults {
		orphans = orphans || f.Breaks.Orphans || f.Breaks.Leases
	}
	b.mu.Unlock()
	keys := append(slices.Clone(c.keys), c.shared, c.placed, c.many, c.pair[0], c.pair[1])
	if !orphans {
		keys = append(keys, c.mortal)
	}
	var asking sync.WaitGroup
	for _, key := range keys {
		for i, at := range b.straight() {
			asking.Go(func() { client.Probe(c.notes, probeClients+i, at, key, patience) })
		}
	}
	asking.Wait()
}

// findLists reads what the askers have pushed, directly from redis.
func (b *Bench) findLists(c *crowd) {
	for db := range client.Databases {
		for _, a := range c.askers {
			if err := a.Find(c.notes, b.redis.Addr, admin, db); err != nil {
				b.alarm("cannot read the lists of an asker: %v", err)
				return
			}
		}
	}
}

// processes finds faults of the processes themselves: races, panics, unexpected ends.
func (b *Bench) processes() (list []check.Violation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	add := func(text string) {
		list = append(list, check.Violation{Rule: "process", Text: text})
	}
	for _, text := range b.alarms {
		add(text)
	}
	b.alarms = nil
	for i, p := range b.proxy {
		if !p.Alive() {
			add(fmt.Sprintf("proxy %d has ended by itself:\n%s", i, p.Log()))
		}
		if text := p.Alarms(); text != "" && !strings.Contains(b.seen, text) {
			b.seen += text
			add(fmt.Sprintf("proxy %d printed:\n%s", i, text))
		}
	}
	if !b.redis.Alive() {
		add("redis has ended by itself:\n" + b.redis.Log())
	}
	return list
}
