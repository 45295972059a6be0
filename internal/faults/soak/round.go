//go:build linux

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"lockproxy/internal/faults/check"
	"lockproxy/internal/faults/client"
	"lockproxy/internal/faults/history"
	"lockproxy/internal/faults/process"
)

// Result is the outcome of a round.
type Result struct {
	Plan    Plan
	History history.History
	Report  check.Report
}

// Load is how many clients of each kind work, and how hard.
type Load struct {
	Lockers int
	Sharers int // lockers of one more lock, which most of them share
	Waiting int // owners of two connections that wait for each other
	Askers  int
	Noise   int
	Owners  int // how many of 100 LOCKs name an owner
	Think   time.Duration
	Bounds  check.Bounds
}

// The timeouts of locks.
const (
	shortest = 300 * time.Millisecond
	longest  = time.Second
)

// DefaultLoad is moderate: the machine is shared.
func DefaultLoad() Load {
	return Load{Lockers: 14, Sharers: 6, Waiting: 5, Askers: 6, Noise: 2, Owners: 60,
		Think:  60 * time.Millisecond,
		Bounds: check.DefaultBounds()}
}

// Run carries out a plan while clients work, and judges what they saw. An error is of the bench,
// not of the service. When ctx ends, Run stops early and judges what was seen so far.
func (b *Bench) Run(ctx context.Context, p Plan, load Load) (r Result, err error) {
	r.Plan = p
	if err := b.fresh(ctx, p); err != nil {
		return r, err
	}
	c := b.newCrowd(p, load)
	working, stop := context.WithCancel(ctx)
	defer stop()
	c.start(working, b)
	b.carryOut(working, p)
	sleep(working, p.Quiet)
	stop()
	c.finish(b)
	if ctx.Err() == nil {
		b.probe(c)
	}
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

// crowd is the clients of one round.
type crowd struct {
	notes      *history.Recorder
	far        *history.Collector
	keys       []string
	mortal     string
	shared     string
	lockers    []*client.Locker
	askers     []*client.Asker
	mortals    []*client.Mortal
	noise      []interface{ Run(context.Context) }
	goroutines sync.WaitGroup
}

// farClients is the number of the first client in a separate process, distantClients that of the
// first on the machine that vanishes.
const (
	farClients     = 4000
	distantClients = 4100
)

// newCrowd makes the clients. Their locks are used in this round only.
func (b *Bench) newCrowd(p Plan, load Load) *crowd {
	c := &crowd{notes: &history.Recorder{}, far: &history.Collector{},
		mortal: fmt.Sprintf("round-%d:mortal", p.Round),
		shared: fmt.Sprintf("round-%d:shared", p.Round)}
	for i := range 3 {
		c.keys = append(c.keys, fmt.Sprintf("round-%d:lock-%d", p.Round, i))
	}
	random := func(id int) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, uint64(id))) }
	ways := [][]client.Target{b.straight(), b.linked(), b.straight()[:1], b.straight()[1:]}
	for i := range load.Lockers + load.Sharers {
		keys, shared := c.keys, 0
		switch {
		case i >= load.Lockers:
			keys, shared = []string{c.shared}, 80
		case i%5 == 4:
			keys = []string{c.mortal} // they take the lock after a mortal
		}
		c.lockers = append(c.lockers, &client.Locker{ID: i, Targets: ways[i%len(ways)], Keys: keys,
			Random: random(i), Notes: c.notes,
			Think: load.Think, Shortest: shortest, Longest: longest, Sessions: 30,
			Owners: load.Owners, Shared: shared})
	}
	for i := range load.Waiting {
		id := 5000 + i
		o := &client.Owner{Name: fmt.Sprint("owner-", i)}
		for n := range 3 {
			o.Keys = append(o.Keys, fmt.Sprintf("round-%d:owned-%d", p.Round, n))
		}
		for n := range o.Conns {
			o.Conns[n] = &client.Locker{ID: id, Targets: ways[(i+n)%len(ways)],
				Random: random(id + 100*n), Notes: c.notes, Think: 4 * load.Think}
		}
		c.noise = append(c.noise, o)
	}
	for i := range load.Askers {
		id := 1000 + i
		c.askers = append(c.askers, &client.Asker{ID: id, Name: fmt.Sprint("asker:", id),
			Targets: ways[i%2], Users: users, Random: random(id),
			Notes: c.notes, Think: load.Think, Big: 100_000})
	}
	for i := range 2 {
		id := 2000 + i
		c.mortals = append(c.mortals, &client.Mortal{ID: id, Targets: b.straight(), Key: c.mortal,
			Random: random(id), Notes: c.notes, Timeout: time.Minute, Short: longest})
	}
	bad := []client.Target{{Proxy: spare, Addr: b.down[spare].Addr()},
		{Proxy: spare, Addr: b.proxy[spare].Addr}}
	for i := range load.Noise {
		id := 3000 + i
		if i%2 == 0 {
			c.noise = append(c.noise, &client.Asker{ID: id, Name: "N-O-I-S-E", Targets: bad[i/2%2:],
				Users: users[:1], Random: random(id),
				Notes: &history.Recorder{}, Think: load.Think, Big: 2000})
		} else {
			c.noise = append(c.noise, &client.Locker{ID: id, Targets: bad[(i/2+1)%2:],
				Keys: []string{"N-O-I-S-E"}, Random: random(id),
				Notes: &history.Recorder{}, Think: load.Think, Shortest: shortest, Longest: longest,
				Sessions: 30})
		}
	}
	for i := range b.locker {
		b.prepare(&b.locker[i], farClients+i, nil, p, c)
	}
	for i := range b.distant {
		if b.machine != nil {
			b.prepare(&b.distant[i], distantClients+i, b.machine, p, c)
		}
	}
	return c
}

// prepare makes one of the client processes ready for a round.
func (b *Bench) prepare(client *clientProcess, id int, on *process.Machine, p Plan, c *crowd) {
	client.id, client.path, client.notes, client.on = id, b.programs.Soak, c.far, on
	client.args = func(start int) []string {
		return ClientArgs(id, p.Seed+uint64(id+start), b.straight(), c.keys)
	}
}

func (c *crowd) start(ctx context.Context, b *Bench) {
	// ends with ctx; finish waits
	run := func(one interface{ Run(context.Context) }) { c.goroutines.Go(func() { one.Run(ctx) }) }
	for _, l := range c.lockers {
		run(l)
	}
	for _, a := range c.askers {
		run(a)
	}
	for _, m := range c.mortals {
		run(m)
	}
	for _, n := range c.noise {
		run(n)
	}
	for _, p := range b.processesOfClients() {
		if err := p.startAgain(); err != nil {
			b.alarm("%v", err)
		}
	}
}

func (c *crowd) finish(b *Bench) {
	for _, p := range b.processesOfClients() {
		if p.on != nil && b.gone {
			p.kill() // its requests are no longer answered
		}
		p.finish()
	}
	c.goroutines.Wait()
}

// probe asks for every lock through every proxy, now that all faults are over.
func (b *Bench) probe(c *crowd) {
	wait := 8 * time.Second
	if bounds := check.DefaultBounds(); b.gone {
		wait += bounds.Leave + bounds.Vanish
	}
	orphans := false // a lock that a dead client may keep isn't asked for
	b.mu.Lock()
	for _, f := range b.faults {
		orphans = orphans || f.Breaks.Orphans || f.Breaks.Leases
	}
	b.mu.Unlock()
	keys := append(slices.Clone(c.keys), c.shared)
	if !orphans {
		keys = append(keys, c.mortal)
	}
	var asking sync.WaitGroup
	for _, key := range keys {
		for i, at := range b.straight() {
			asking.Go(func() { client.Probe(c.notes, 5000+i, at, key, wait) })
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
