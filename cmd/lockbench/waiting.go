package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// waiting is many clients in line for a lock that is held: what they cost while nothing happens,
// and how soon the first of them has the lock once it is released.
type waiting struct {
	clients int
	quiet   time.Duration
	tries   int
	results []waited
}

type waited struct {
	used      usage // in the quiet time
	handOvers durations
}

// settle is how long the line is left alone before each release, so that the first in line is
// really waiting.
const settle = 20 * time.Millisecond

func (j *waiting) title() string   { return "Waiting" }
func (j *waiting) cases() []string { return []string{fmt.Sprintf("%d clients in line", j.clients)} }

// grant is a waiter's turn.
type grant struct {
	to *proxyLock
	at time.Time
}

func (j *waiting) measure(b *bench, _ int) error {
	f := b.field(maxRun)
	holders, err := f.raws(j.clients+1, f.through(1),
		func(_ int, c *rawClient) locker {
			return &proxyLock{rawClient: c, ask: c.number, key: "job", wait: true}
		})
	var running sync.WaitGroup
	defer running.Wait() // for the waiters, which end when their connections close
	defer f.close()
	if err != nil {
		return err
	}
	holder := holders[0].(*proxyLock)
	if err := holder.acquire(); err != nil {
		return err
	}
	grants := make(chan grant, len(holders))
	queue := func(l *proxyLock) {
		running.Go(func() {
			if l.acquire() == nil {
				grants <- grant{l, time.Now()}
			}
		})
	}
	for _, l := range holders[1:] {
		queue(l.(*proxyLock))
	}
	if err := j.inLine(f, "job"); err != nil {
		return err
	}
	var result waited
	result.used, err = b.during(func() error { time.Sleep(j.quiet); return b.ctx.Err() })
	if err != nil {
		return err
	}
	if result.handOvers, err = j.handOver(holder, grants, queue); err != nil {
		return err
	}
	j.results = append(j.results, result)
	return nil
}

// handOver releases the lock again and again; who has had it goes to the end of the line.
func (j *waiting) handOver(
	holder *proxyLock, grants <-chan grant, queue func(*proxyLock),
) (durations, error) {
	var took durations
	for range j.tries {
		time.Sleep(settle)
		sent := time.Now()
		if err := holder.release(); err != nil {
			return nil, err
		}
		select {
		case g := <-grants:
			took = append(took, g.at.Sub(sent))
			queue(holder)
			holder = g.to
		case <-time.After(10 * time.Second):
			return nil, errors.New("nobody in line was given the lock within 10 s of its release")
		}
	}
	slices.Sort(took)
	return took, nil
}

// inLine waits until all clients are in line.
func (j *waiting) inLine(f *field, key string) error {
	c, err := dial(f.proxies[0])
	if err != nil {
		return err
	}
	defer c.close()
	deadline := time.Now().Add(15 * time.Second)
	for ; time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if n, err := c.waiters(key); err != nil || n == j.clients {
			return err
		}
	}
	return fmt.Errorf("not all of %d clients got into the line within 15 s: a limit of the "+
		"system on open files (ulimit -n) may be too low", j.clients)
}

// waiters is how many wait for a lock, as LOCKINFO says.
func (c *rawClient) waiters(key string) (int, error) {
	if err := c.send("LOCKINFO", key); err != nil {
		return 0, err
	}
	head, err := c.in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	if head[0] != '*' {
		return 0, fmt.Errorf("LOCKINFO answered %q", head)
	}
	elems, _ := strconv.Atoi(head[1 : len(head)-2])
	waiters := 0
	last := ""
	for range elems {
		r, err := c.receive()
		if err != nil {
			return 0, err
		}
		if last == "waiters" {
			waiters = int(r.n)
		}
		last = r.text
	}
	return waiters, nil
}

func (j *waiting) sections() []*section {
	s := &section{
		title: fmt.Sprintf("%d clients in line for a held lock", j.clients),
		before: fmt.Sprintf("LOCK WAIT through one proxy. While the lock is held for %v nothing "+
			"else happens: Redis commands/s are all that the waiting costs it (those that "+
			"scripts call as well). Then the holder releases, %d times in each round, %v apart: "+
			"from the sending of its UNLOCK until the first in line has read its token.",
			j.quiet, j.tries, settle),
		header: []string{"", "Redis commands/s", "scripts/s", "hand-over ms, median", "p90",
			"longest"},
	}
	rate := func(n int) float64 { return float64(n) / j.quiet.Seconds() }
	s.row(j.cases()[0],
		spread(j.results, "%.1f", func(w waited) float64 { return rate(w.used.commands) }),
		middle(j.results, "%.1f", func(w waited) float64 { return rate(w.used.scripts) }),
		spread(j.results, "%.2f", func(w waited) float64 { return ms(w.handOvers.at(0.5)) }),
		middle(j.results, "%.2f", func(w waited) float64 { return ms(w.handOvers.at(0.9)) }),
		spread(j.results, "%.2f", func(w waited) float64 { return ms(w.handOvers.longest()) }))
	return []*section{s}
}
