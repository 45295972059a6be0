//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"lockproxy/internal/test/faults/process"
	"lockproxy/internal/test/faults/soak"
)

// runCommand is the soak itself.
type runCommand struct {
	Duration time.Duration `default:"10m" help:"The duration of the run (default ${default})."`
	Seed     uint64        `help:"The seed of all faults; 0 chooses one at random."`
	Round    int           `default:"1" help:"The first round (default ${default})."`
	Rounds   int           `help:"The number of rounds; 0 runs rounds until the time has expired."`
	Only     []string      `help:"Cause only these kinds of faults."`
	Plan     bool          `help:"Print the plan, and run nothing."`
	Out      string        `default:"." type:"existingdir" help:"The histories' folder (default: .)."`
	Summary  string        `help:"Write the summary to this file, too."`
	Proxy    string        `type:"existingfile" help:"A built lockproxy (default: one with -race)."`
	Machine  bool          `default:"true" negatable:"" help:"Let two clients vanish with a machine."`
	Clients  int           `default:"14" help:"The number of competing clients (default ${default})."`
	Far      time.Duration `help:"The delay between one proxy and Redis, in each direction."`
}

// planned is the plan of a round.
func (c *runCommand) planned(round int) soak.Plan {
	p := soak.NewPlan(c.Seed, round, c.Only, c.Machine)
	p.Far = 2 * c.Far
	return p
}

// progressEvery is the time between lines of progress.
const progressEvery = 10 * time.Second

// Run runs rounds until the time has expired, or ctx is done.
func (c *runCommand) Run(ctx context.Context) error {
	for _, name := range c.Only {
		if !soak.Known(name) {
			return fmt.Errorf("no fault is called %q: the faults are %q", name, soak.Kinds())
		}
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64N(1e9)
	}
	fmt.Printf("seed %d: SEED=%d repeats the faults\n", c.Seed, c.Seed)
	if c.Plan {
		for n := range max(c.Rounds, 1) {
			fmt.Print(c.planned(c.Round + n))
		}
		return nil
	}
	return c.run(ctx)
}

func (c *runCommand) run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "lockproxy-soak")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	programs, err := c.programs(ctx, dir)
	if err != nil {
		return err
	}
	if !c.Machine {
		fmt.Println("--no-machine leaves out the fault: machine vanished")
	}
	bench, err := soak.NewBench(ctx, dir, programs, c.Seed, c.Machine)
	if err != nil {
		return err
	}
	defer bench.Close()
	start := time.Now()
	p := &progress{start: start, bench: bench, summary: soak.NewSummary()}
	telling, stop := context.WithCancel(context.Background())
	var teller sync.WaitGroup
	teller.Go(func() { p.tell(telling) })
	err = c.rounds(ctx, bench, p)
	stop()
	teller.Wait()
	p.summary.Write(os.Stdout, time.Since(start))
	if c.Summary != "" {
		err = firstError(err, c.writeSummary(p.summary, time.Since(start)))
	}
	return err
}

func (c *runCommand) programs(ctx context.Context, dir string) (p soak.Programs, err error) {
	if p.Tools, err = os.Executable(); err != nil {
		return p, err
	}
	if p.Proxy = c.Proxy; p.Proxy == "" {
		p.Proxy, err = process.Build(ctx, dir, "lockproxy")
	}
	return p, err
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (c *runCommand) writeSummary(s *soak.Summary, ran time.Duration) error {
	f, err := os.Create(c.Summary)
	if err != nil {
		return err
	}
	fmt.Fprintf(f, "seed %d\n", c.Seed)
	s.Write(f, ran)
	return f.Close()
}

// rounds runs the rounds, and returns errViolations if there were any.
func (c *runCommand) rounds(ctx context.Context, bench *soak.Bench, p *progress) (err error) {
	load := soak.DefaultLoad()
	load.Lockers = c.Clients
	for n := c.Round; time.Since(p.start) < c.Duration && ctx.Err() == nil &&
		(c.Rounds == 0 || n < c.Round+c.Rounds); n++ {
		r, failed := bench.Run(ctx, c.planned(n), load)
		if failed != nil {
			if ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("round %d: %w", n, failed)
		}
		p.add(r)
		if len(r.Report.Violations) == 0 {
			continue
		}
		err = errViolations
		path := filepath.Join(c.Out, fmt.Sprintf("violation-seed-%d-round-%d.jsonl", c.Seed, n))
		fmt.Print(r.Describe())
		fmt.Print(r.Plan)
		if failed := r.History.Save(path); failed != nil {
			return failed
		}
		fmt.Printf("the history is in %s; locktools soak --seed %d --round %d --rounds 1 repeats "+
			"the faults\n", path, c.Seed, n)
	}
	return err
}

// progress is the state of the run, for lines of progress.
type progress struct {
	start time.Time
	bench *soak.Bench

	mu      sync.Mutex
	summary *soak.Summary // guarded by mu
}

func (p *progress) add(r soak.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.summary.Add(r)
}

func (p *progress) tell(ctx context.Context) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		line := p.summary.Line()
		p.mu.Unlock()
		if doing := p.bench.Doing(); doing != "" {
			line += "; now: " + doing
		}
		fmt.Printf("%v: %s\n", time.Since(p.start).Round(time.Second), line)
	}
}
