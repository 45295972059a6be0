package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// locksCmd is the report on locks.
type locksCmd struct {
	Output  string        `short:"o" placeholder:"FILE" help:"Write the report to a file too."`
	Proxy   string        `placeholder:"PATH" help:"A built lockproxy (default: built from the source that lockbench is run in)."`
	Rounds  int           `default:"3" help:"Rounds of every workload; figures are medians over them (default ${default})."`
	Time    time.Duration `default:"2s" help:"Length of one run of contention or pairs (default ${default})."`
	Clients int           `default:"100" help:"Clients of the contended lock and of the jobs; even (default ${default})."`
	Waiters int           `default:"1000" help:"Clients in line for a held lock (default ${default})."`
	Jobs    int           `default:"1000" help:"Jobs of the seed workload (default ${default})."`
	Pause   time.Duration `default:"10ms" help:"Sleep between the tries of locks that poll (default ${default})."`
	Limit   time.Duration `default:"6m" help:"End without a report after this time (default ${default})."`
	Only    []string      `placeholder:"WORKLOAD" enum:"contention,waiting,seed,pairs" help:"Only these, of contention, waiting, seed and pairs."`
}

// How long a held lock is watched, how often it is then released, and how many clients have a lock each.
const (
	quietTime   = 3 * time.Second
	handOvers   = 50
	pairClients = 50
)

// Validate is called by kong.
func (c *locksCmd) Validate() error {
	if c.Rounds < 1 || c.Clients < 2 || c.Clients%2 != 0 || c.Waiters < 1 || c.Jobs < 1 || c.Time <= 0 || c.Pause < 0 {
		return fmt.Errorf("rounds, waiters, jobs and time must be positive, clients even and at least 2, pause not negative")
	}
	if c.Time > maxRun/6 {
		return fmt.Errorf("a run of %v is too long: at most %v", c.Time, maxRun/6)
	}
	return nil
}

// Run is called by kong.
func (c *locksCmd) Run(ctx context.Context, stdout io.Writer, p *progress) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Limit, fmt.Errorf("the time limit of %v (--limit) is over", c.Limit))
	defer cancel()
	report, err := c.measure(ctx, p)
	p.end()
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return fmt.Errorf("ended without a report: %w", cause)
		}
		return err
	}
	if c.Output != "" {
		if err := os.WriteFile(c.Output, []byte(report), 0o644); err != nil {
			return fmt.Errorf("cannot write the report: %w", err)
		}
	}
	_, err = io.WriteString(stdout, report)
	return err
}

func (c *locksCmd) measure(ctx context.Context, p *progress) (string, error) {
	b, stop, err := c.start(ctx, p)
	if err != nil {
		return "", err
	}
	defer stop()
	var report strings.Builder
	report.WriteString(c.head(b.monitor.version()))
	jobs := c.workloads()
	for _, j := range jobs {
		p.total += len(j.cases()) * c.Rounds
	}
	for _, j := range jobs {
		s, err := b.run(j)
		if err != nil {
			return "", err
		}
		report.WriteString(s.markdown())
	}
	return report.String(), nil
}

func (c *locksCmd) workloads() []job {
	var jobs []job
	add := func(name string, j job) {
		if len(c.Only) == 0 || slices.Contains(c.Only, name) {
			jobs = append(jobs, j)
		}
	}
	add("contention", newContention(c.Clients, c.Time, c.Pause))
	add("waiting", &waiting{clients: c.Waiters, quiet: quietTime, tries: handOvers})
	add("seed", newSeed(c.Clients, c.Jobs, c.Pause))
	add("pairs", newPairs(pairClients, c.Time))
	return jobs
}

// start starts a Redis and two proxies in front of it. stop ends them.
func (c *locksCmd) start(ctx context.Context, p *progress) (b *bench, stop func(), err error) {
	s, err := newServers()
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	b = &bench{ctx: ctx, progress: p, rounds: c.Rounds}
	path := c.Proxy
	if path == "" {
		if path, err = s.buildProxy(ctx); err != nil {
			return nil, nil, err
		}
	}
	redis, err := s.startRedis(ctx)
	if err != nil {
		return nil, nil, err
	}
	b.redis = redis.addr
	for range 2 {
		proxy, err := s.startProxy(ctx, path, redis.addr)
		if err != nil {
			return nil, nil, err
		}
		b.proxies = append(b.proxies, proxy.addr)
	}
	direct, err := dial(redis.addr)
	if err != nil {
		return nil, nil, err
	}
	direct.nc.SetDeadline(time.Now().Add(c.Limit))
	b.monitor = monitor{direct}
	return b, func() { direct.close(); s.close() }, nil
}

func (c *locksCmd) head(redisVersion string) string {
	return fmt.Sprintf(`# Locks beside one another

Written by `+"`make bench-locks`"+`; run it again for the figures of your machine.

%s. All servers and clients on the one machine, by loopback: what a client costs is lost to the servers. So LOCK is driven by a light
client of lockbench's own, and by go-redis as well. Medians of %d rounds; the cases of a workload take turns within each round. Figures of
a small or busy machine vary: the spread says how much.
`, machine(redisVersion), c.Rounds)
}
