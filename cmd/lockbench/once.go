package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// making is many clients that ask at the same moment for a value that is missing. Each case is a way
// to make it once.
type making struct {
	clients int
	results [][]*made // by case, by round
}

// made is one run of a case.
type made struct {
	times int             // how often the value was made
	waits []time.Duration // of each client, in order of length
	used  usage
}

const (
	makers   = 1000
	makeTime = 50 * time.Millisecond
	laravel  = 250 * time.Millisecond // how often Cache::lock()->block() asks
	valueKey = "page"
	lockKey  = "page:lock"
)

// makeWay is how a client of a case gets the value.
type makeWay struct {
	name   string
	direct bool // to Redis
	get    func(ctx context.Context, c *rawClient, build func() string) (string, error)
}

var makeWays = []makeWay{
	{"ONCE WAIT", false, makeByOnce},
	{"GET, SET NX, then GET every 100 ms", true, makeAndPoll},
	{"a lock every 100 ms (redis-py, bsm/redislock)", true, makeInLock(pollPause)},
	{"a lock every 250 ms (Laravel)", true, makeInLock(laravel)},
}

func makeByOnce(_ context.Context, c *rawClient, build func() string) (string, error) {
	r, err := c.do("ONCE", valueKey, "60", "WAIT", "0")
	if err != nil || r.n == 0 {
		return r.text, err
	}
	value := build()
	if n, err := c.number("DONE", valueKey, fmt.Sprint(r.n), value, "EX", "600"); err != nil || n != 1 {
		return "", errors.Join(err, errors.New("DONE stored nothing"))
	}
	return value, nil
}

// makeAndPoll looks again and again for the value, unless it has the lock.
func makeAndPoll(ctx context.Context, c *rawClient, build func() string) (string, error) {
	for {
		if r, err := c.do("GET", valueKey); err != nil || !r.null {
			return r.text, err
		}
		r, err := c.do("SET", lockKey, "1", "NX", "PX", "60000")
		if err != nil {
			return "", err
		}
		if !r.null {
			value := build()
			_, err = c.do("SET", valueKey, value, "EX", "600")
			return value, err
		}
		if err := pauseFor(ctx, pollPause); err != nil {
			return "", err
		}
	}
}

// makeInLock is a library's lock around a second look and the making, as its manual has it: the lock
// is asked for every so often.
func makeInLock(
	every time.Duration,
) func(context.Context, *rawClient, func() string) (string, error) {
	return func(ctx context.Context, c *rawClient, build func() string) (string, error) {
		if r, err := c.do("GET", valueKey); err != nil || !r.null {
			return r.text, err
		}
		mine := c.nc.LocalAddr().String()
		for {
			if r, err := c.do("SET", lockKey, mine, "NX", "PX", "60000"); err != nil {
				return "", err
			} else if !r.null {
				break
			}
			if err := pauseFor(ctx, every); err != nil {
				return "", err
			}
		}
		r, err := c.do("GET", valueKey)
		if err == nil && r.null {
			r.text = build()
			_, err = c.do("SET", valueKey, r.text, "EX", "600")
		}
		if err == nil {
			_, err = c.do("EVAL", compareAndDelete, "1", lockKey, mine)
		}
		return r.text, err
	}
}

func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func oncePart(quick bool) *part {
	p := &part{rounds: 5, needs: needs{lockproxies: 1}, jobs: []job{
		&making{makers, make([][]*made, len(makeWays))},
		&hitting{time: 2 * time.Second, results: make([][]float64, len(hitWays))}}}
	if quick {
		p.rounds = 1
	}
	return p
}

func onceDocument(quick bool) *document {
	return &document{name: "bench-once", head: onceHead, parts: []*part{oncePart(quick)}}
}

func onceHead(l *lab) string {
	return fmt.Sprintf(`# A value that is made once

Written by `+"`make bench-once`"+`; run it again for the figures of your machine. What ONCE is:
[once.md](once.md).

%s; %s; Redis %s; lockproxy %s%s; %s.

All servers and clients share the one machine, by loopback. The ways take turns within each round, so
that other programs disturb them alike: compare them with each other. Figures are medians over the
rounds, in brackets the least and most of them.
`, machine(), describeOthers(l.others), l.versions.redis, l.versions.lockproxy, l.withArgs(),
		platform())
}

func (j *making) title() string { return "A missing value" }

func (j *making) cases() (names []string) {
	for _, w := range makeWays {
		names = append(names, w.name)
	}
	return names
}

func (j *making) measure(b *bench, i int) error {
	way, m := makeWays[i], &made{waits: make([]time.Duration, j.clients)}
	f := b.field(maxReply)
	defer f.close()
	addr := f.through(1)
	if way.direct {
		addr = f.direct
	}
	clients := make([]*rawClient, j.clients)
	if _, err := f.raws(j.clients, addr, func(n int, c *rawClient) locker {
		clients[n] = c
		return nil
	}); err != nil {
		return err
	}
	for _, c := range clients { // it is served, and all scripts and connections are there
		if _, err := c.do("GET", "other"); err != nil {
			return err
		}
	}
	var times atomic.Int64
	build := func() string { times.Add(1); time.Sleep(makeTime); return "made" }
	var err error
	m.used, err = b.during(func() error {
		failed := make([]error, j.clients)
		var all sync.WaitGroup
		began := time.Now()
		for n, c := range clients {
			all.Go(func() {
				value, err := way.get(f.ctx, c, build)
				if m.waits[n] = time.Since(began); err == nil && value != "made" {
					err = fmt.Errorf("the value is %q", value)
				}
				failed[n] = err
			})
		}
		all.Wait()
		return errors.Join(failed...)
	})
	if err != nil {
		return err
	}
	slices.Sort(m.waits)
	m.times = int(times.Load())
	j.results[i] = append(j.results[i], m)
	return nil
}

func (m *made) mean() float64 {
	sum := time.Duration(0)
	for _, w := range m.waits {
		sum += w
	}
	return ms(sum) / float64(len(m.waits))
}

func (j *making) sections() []*section {
	s := &section{
		title: fmt.Sprintf("%s clients ask for a missing value", thousands(j.clients)),
		before: fmt.Sprintf("All ask at the same moment, each by a connection of its own. To make "+
			"the value takes %v. The others are the algorithms of libraries, by the same light "+
			"client, directly at Redis: SET NX PX, asked again every so often; behind it a second "+
			"look for the value; compare-and-delete. Commands are all that Redis ran, also by "+
			"scripts.", makeTime),
		header: []string{"", "made", "mean wait ms", "p99 wait ms", "longest ms", "Redis commands"},
	}
	for i, way := range makeWays {
		r := j.results[i]
		at := func(share int) func(*made) float64 {
			return func(m *made) float64 { return ms(m.waits[(len(m.waits)-1)*share/100]) }
		}
		s.row(way.name, spread(r, "%.0f", func(m *made) float64 { return float64(m.times) }),
			spread(r, "%.0f", (*made).mean), spread(r, "%.0f", at(99)), spread(r, "%.0f", at(100)),
			spread(r, "%.0f", func(m *made) float64 { return float64(m.used.commands) }))
	}
	return []*section{s}
}
