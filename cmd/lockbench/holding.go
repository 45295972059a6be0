package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"lockproxy/cmd/lockbench/stat"
)

// holding is clients that take and release locks again and again, while others hold as many: one
// lock that all share, or a lock each.
type holding struct {
	contest
	holders int
	time    time.Duration
}

func newHolding(holders, clients int, d time.Duration) *holding {
	return &holding{holders: holders, time: d, contest: newContest(clients,
		lockAmong(fmt.Sprintf("one lock, SHARED: %s hold it", thousands(holders)), holders, true),
		lockAmong(fmt.Sprintf("%s exclusive locks, as many others are held", thousands(holders)),
			holders, false),
	)}
}

// lockAmong is LOCK and UNLOCK through one proxy, by a light client each. So many others, with a
// connection each, hold locks throughout: that lock, or a lock each, next to as many that the
// clients go through.
func lockAmong(name string, holders int, shared bool) contender {
	return contender{name, func(f *field, n int, key func(int) string) ([]locker, error) {
		held, err := f.raws(holders, f.through(1), func(i int, c *rawClient) locker {
			return &turnLock{rawClient: c, keys: []string{fmt.Sprintf("held:%d", i)}}
		})
		if err != nil {
			return nil, err
		}
		for _, h := range held {
			h := h.(*turnLock)
			if shared {
				h.keys, h.shared = []string{key(0)}, true
			}
			if err := h.acquire(); err != nil {
				return nil, err
			}
		}
		return f.raws(n, f.through(1), func(i int, c *rawClient) locker {
			l := &turnLock{rawClient: c, keys: []string{key(0)}, shared: shared}
			if !shared {
				l.keys = nil
				for at := i; at < holders; at += n {
					l.keys = append(l.keys, key(at))
				}
			}
			return l
		})
	}}
}

// turnLock is LOCK and UNLOCK of several locks in turn.
type turnLock struct {
	*rawClient
	keys   []string
	shared bool
	next   int
	token  int64
}

func (l *turnLock) key() string { return l.keys[l.next%len(l.keys)] }

func (l *turnLock) acquire() (err error) {
	args := []string{"LOCK", l.key(), lockSeconds, "SHARED"}
	if !l.shared {
		args = args[:3]
	}
	l.token, err = l.number(args...)
	if err == nil && l.token == 0 {
		err = errors.New("LOCK answered null")
	}
	return err
}

func (l *turnLock) release() error {
	n, err := l.number("UNLOCK", l.key(), strconv.FormatInt(l.token, 10))
	if err == nil && n != 1 {
		err = errNotReleased
	}
	l.next++
	return err
}

func (j *holding) title() string { return "Many holders" }

func (j *holding) measure(b *bench, i int) error {
	return j.lock(b, i, j.time+stallAfter, drive{time: j.time})
}

func (j *holding) sections() []*section {
	s := &section{
		title: fmt.Sprintf("A lock that %s share", count(j.holders, "client")),
		before: fmt.Sprintf("%d clients take and release, again and again for %v, through one "+
			"proxy and by the light client, while %s with a connection each keep what they hold. "+
			"Either all of them share one lock (SHARED), or all locks are exclusive: the clients "+
			"then go through %s keys, each through its own part, next to as many that are held. "+
			"Nobody waits. Ratios are to the exclusive locks in the same round.",
			j.clients, j.time, count(j.holders, "other"), thousands(j.holders)),
		header: []string{"", "pairs/s", "ratio", "Redis CPU µs/pair", "ratio", "commands/pair",
			"mean LOCK ms", "p99 LOCK ms"},
	}
	ratio := func(i int, figure func(*outcome) float64) stat.Spread {
		return j.results.ratio(i, 1, figure)
	}
	for i, c := range j.contenders {
		rounds := j.results[i]
		s.row(c.name,
			spread(rounds, "%.0f", (*outcome).rate),
			ratio(i, (*outcome).rate).Format("%.2f"),
			spread(rounds, "%.1f", (*outcome).cpu),
			ratio(i, (*outcome).cpu).Format("%.2f"),
			middle(rounds, "%.1f", (*outcome).commands),
			middle(rounds, "%.2f", (*outcome).meanWait),
			middle(rounds, "%.2f", (*outcome).p99Wait))
	}
	return []*section{s}
}
