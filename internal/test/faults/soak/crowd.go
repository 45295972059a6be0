//go:build linux

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"lockproxy/internal/test/faults/client"
	"lockproxy/internal/test/faults/history"
	"lockproxy/internal/test/faults/process"
)

// crowd is the clients of one round.
type crowd struct {
	notes      *history.Recorder
	far        *history.Collector
	keys       []string
	mortal     string
	shared     string
	placed     string
	pair       [2]string
	many       string
	lockers    []*client.Locker
	askers     []*client.Asker
	mortals    []*client.Mortal
	noise      []interface{ Run(context.Context) }
	goroutines sync.WaitGroup
}

// askerClients is the number of the first asker, farClients that of the first client in a separate
// process, distantClients that of the first on the machine that vanishes, beatClients that of the
// first that only measures, probeClients that of the first that asks when all is over.
const (
	askerClients   = 1000
	mostAskers     = 100
	farClients     = 4000
	distantClients = 4100
	beatClients    = 6000
	probeClients   = 6100
)

// manyConns is how many connections an owner of many has at most.
const manyConns = 12

// newCrowd makes the clients. Their locks are used in this round only.
func (b *Bench) newCrowd(p Plan, load Load) *crowd {
	c := &crowd{notes: &history.Recorder{}, far: &history.Collector{},
		mortal: fmt.Sprintf("round-%d:mortal", p.Round),
		shared: fmt.Sprintf("round-%d:shared", p.Round),
		placed: fmt.Sprintf("round-%d:placed", p.Round), many: fmt.Sprintf("round-%d:many", p.Round),
		pair: [2]string{fmt.Sprintf("round-%d:one", p.Round), fmt.Sprintf("round-%d:other", p.Round)}}
	for i := range 3 {
		c.keys = append(c.keys, fmt.Sprintf("round-%d:lock-%d", p.Round, i))
	}
	random := func(id int) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, uint64(id))) }
	ways := [][]client.Target{b.straight(), b.linked(), b.straight()[:1], b.straight()[1:]}
	for i := range load.Lockers + load.Sharers + load.Pairs {
		keys, shared := c.keys, 0
		var pairs map[string]string
		switch {
		case i >= load.Lockers+load.Sharers:
			keys, pairs = c.pair[:], map[string]string{c.pair[0]: c.pair[1], c.pair[1]: c.pair[0]}
		case i >= load.Lockers:
			keys, shared = []string{c.shared}, 80
		case i%5 == 4:
			keys = []string{c.mortal} // they take the lock after a mortal
		}
		c.lockers = append(c.lockers, &client.Locker{ID: i, Targets: ways[i%len(ways)], Keys: keys,
			Random: random(i), Notes: c.notes,
			Think: load.Think, Shortest: shortest, Longest: longest, Sessions: 30,
			Owners: load.Owners, Shared: shared, Pairs: pairs})
	}
	for i := range 2 * load.Places {
		l := &client.Locker{ID: 6500 + i, Targets: ways[i%len(ways)], Keys: []string{c.placed},
			Random: random(6500 + i), Notes: c.notes, Think: load.Think, Shortest: shortest,
			Longest: longest, Sessions: 30, Owners: load.Owners, Places: i < load.Places}
		if l.Places && i%2 == 1 {
			l.Keys, l.Shared = []string{c.shared}, 60
		}
		c.noise = append(c.noise, l)
	}
	for i := range load.Many {
		m := &client.Many{Name: fmt.Sprint("many-", i), Key: c.many}
		for n := range manyConns {
			id := 5500 + i
			m.Conns = append(m.Conns, &client.Locker{ID: id, Conn: n, Targets: ways[n%2],
				Random: random(id + 100*n), Notes: c.notes, Think: 4 * load.Think,
				Longest: shortest, Shortest: shortest})
		}
		c.noise = append(c.noise, m)
	}
	for i := range load.Waiting {
		id := 5000 + i
		o := &client.Owner{Name: fmt.Sprint("owner-", i)}
		for n := range 3 {
			o.Keys = append(o.Keys, fmt.Sprintf("round-%d:owned-%d", p.Round, n))
		}
		for n := range o.Conns {
			o.Conns[n] = &client.Locker{ID: id, Conn: n, Targets: ways[(i+n)%len(ways)],
				Random: random(id + 100*n), Notes: c.notes, Think: 4 * load.Think}
		}
		c.noise = append(c.noise, o)
	}
	for i := range load.Unblocked {
		u, id := &client.Unblocked{}, 7000+i
		for n, of := range []**client.Locker{&u.Waits, &u.Ends} {
			*of = &client.Locker{ID: id, Conn: n, Targets: ways[i%len(ways)], Keys: c.keys,
				Random: random(id + 100*n), Notes: c.notes, Think: load.Think, Shortest: shortest,
				Longest: longest, Sessions: 30}
		}
		c.noise = append(c.noise, u)
	}
	for i := range load.Logins {
		id := 7500 + i
		c.noise = append(c.noise, &client.Login{ID: id, Targets: ways[i%len(ways)],
			Passwords: b.passwords[1], Random: random(id), Notes: c.notes, Think: load.Think})
	}
	for i := range load.Askers {
		id := askerClients + i
		c.askers = append(c.askers, &client.Asker{ID: id, Name: fmt.Sprint("asker:", id),
			Targets: ways[i%2], Users: users, Without: ofProxies, Random: random(id),
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
				Users: users[:1], Without: ofProxies, Random: random(id),
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
	client.id, client.path, client.notes, client.on = id, b.programs.Tools, c.far, on
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
