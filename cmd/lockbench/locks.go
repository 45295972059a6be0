package main

import (
	"fmt"
	"slices"
	"time"
)

// locksCmd is the report on locks.
type locksCmd struct {
	common
	Time    time.Duration `default:"2s" help:"Length of one run of contention or pairs (default ${default})."`
	Clients int           `default:"100" help:"Clients of the contended lock and of the jobs; even (default ${default})."`
	Waiters int           `default:"1000" help:"Clients in line for a held lock (default ${default})."`
	Jobs    int           `default:"1000" help:"Jobs of the seed workload (default ${default})."`
	Pause   time.Duration `default:"10ms" help:"Sleep between the tries of locks that poll (default ${default})."`
	Only    []string      `placeholder:"WORKLOAD" enum:"contention,waiting,seed,pairs" help:"Only these, of contention, waiting, seed and pairs."`
}

// How long a held lock is watched, and how often it is then released.
const (
	quietTime = 3 * time.Second
	handOvers = 50
)

// Validate is called by kong.
func (c *locksCmd) Validate() error {
	if c.Clients < 2 || c.Clients%2 != 0 || c.Waiters < 1 || c.Jobs < 1 || c.Time <= 0 || c.Pause < 0 {
		return fmt.Errorf("waiters, jobs and time must be positive, clients even and at least 2, pause not negative")
	}
	if c.Time > maxRun/6 {
		return fmt.Errorf("a run of %v is too long: at most %v", c.Time, maxRun/6)
	}
	return nil
}

func (c *locksCmd) documents() []*document {
	p := &part{rounds: 3, needs: needs{lockproxies: 2}}
	d := c.Time
	if c.Quick {
		p.rounds, d = 1, min(d, time.Second)
	}
	add := func(name string, j job) {
		if len(c.Only) == 0 || slices.Contains(c.Only, name) {
			p.jobs = append(p.jobs, j)
		}
	}
	add("contention", newContention(c.Clients, d, c.Pause))
	add("waiting", &waiting{clients: c.Waiters, quiet: quietTime, tries: handOvers})
	add("seed", newSeed(c.Clients, c.Jobs, c.Pause))
	add("pairs", newPairs(pairClients, d))
	return []*document{{name: "bench-locks", head: locksHead, parts: []*part{p}}}
}

// locksPart is the workloads of locks but pairs, as they are without flags.
func locksPart(quick bool) *part {
	c := locksCmd{common: common{Quick: quick}, Time: 2 * time.Second, Clients: 100, Waiters: 1000, Jobs: 1000, Pause: 10 * time.Millisecond,
		Only: []string{"contention", "waiting", "seed"}}
	return c.documents()[0].parts[0]
}

func locksHead(l *lab) string {
	return fmt.Sprintf(`# Locks beside one another

Written by `+"`make bench-locks` or `make bench`"+`; run it again for the figures of your machine.

%s; Redis %s; lockproxy %s%s; go-redis %s, bsm/redislock %s, rueidislock %s; %s. All servers and clients on the one machine, by
loopback: what a client costs is lost to the servers. So LOCK is driven by a light client of lockbench's own, and by go-redis as well. Figures are
medians over the rounds, in brackets the least and most of them; the cases of a workload take turns within each round. Figures of a small or busy
machine vary: the spread says how much.
`, machine(), l.versions.redis, l.versions.lockproxy, l.withArgs(), library("github.com/redis/go-redis/v9"), library("github.com/bsm/redislock"),
		library("github.com/redis/rueidis"), platform())
}
