package main

import (
	"context"
	"fmt"
	"time"

	"lockproxy/cmd/lockbench/chart"
	"lockproxy/cmd/lockbench/stat"
)

// parking is many clients that poll one lock, as redis-py's Lock does: directly, through lockproxy,
// and through a lockproxy with --park.
type parking struct {
	contest
	time time.Duration
}

const (
	pollers   = 100
	pollPause = 100 * time.Millisecond // redis-py's
	pollHold  = 5 * time.Millisecond
	pollRest  = 50 * time.Millisecond // before a client comes back
	parkTime  = 5 * time.Second
	parkFor   = "200ms"
)

var parkingWays = []string{"directly", "through lockproxy", "through lockproxy --park " + parkFor}

func parkingPart(quick bool) *part {
	p := &part{rounds: 3, needs: needs{lockproxies: 1, parking: true},
		jobs: []job{newParking(pollers, parkTime)}}
	if quick {
		p.rounds, p.jobs = 1, []job{newParking(pollers, parkTime/5)}
	}
	return p
}

func parkingDocument(quick bool) *document {
	return &document{name: "bench-park", head: parkingHead, parts: []*part{parkingPart(quick)}}
}

func parkingHead(l *lab) string {
	return fmt.Sprintf(`# Clients that poll a lock

Written by `+"`make bench-park`"+`; run it again for the figures of your machine.

%s; %s; Redis %s; lockproxy %s%s; %s.

All servers and clients share the one machine, by loopback. The three ways take turns within each
round, so that other programs disturb them alike: compare them with each other. Figures are medians
over the rounds, in brackets the least and most of them.
`, machine(), describeOthers(l.others), l.versions.redis, l.versions.lockproxy, l.withArgs(),
		platform())
}

func newParking(clients int, d time.Duration) *parking {
	return &parking{time: d, contest: newContest(clients,
		pollerAt(parkingWays[0], func(f *field) string { return f.redis }),
		pollerAt(parkingWays[1], func(f *field) string { return f.proxies[0] }),
		pollerAt(parkingWays[2], func(f *field) string { return f.proxies[1] }),
	)}
}

func pollerAt(name string, addr func(f *field) string) contender {
	return contender{name, func(f *field, n int, key func(int) string) ([]locker, error) {
		script, err := f.monitor.do("SCRIPT", "LOAD", compareAndDelete)
		if err != nil {
			return nil, err
		}
		return f.raws(n, func(int) string { return addr(f) }, func(i int, c *rawClient) locker {
			return &pollLock{rawClient: c, ctx: f.ctx, key: key(i), value: fmt.Sprint("client-", i),
				script: script.text}
		})
	}}
}

// pollLock is SET NX PX each pollPause, and compare-and-delete.
type pollLock struct {
	*rawClient
	ctx                context.Context
	key, value, script string
}

const compareAndDelete = `local value = redis.call('get', KEYS[1])
if not value or value ~= ARGV[1] then return 0 end
redis.call('del', KEYS[1])
return 1`

func (l *pollLock) acquire() error {
	for {
		r, err := l.do("SET", l.key, l.value, "NX", "PX", lockSeconds+"000")
		if err != nil || !r.null {
			return err
		}
		select {
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		case <-time.After(pollPause):
		}
	}
}

func (l *pollLock) release() error {
	n, err := l.number("EVALSHA", l.script, "1", l.key, l.value)
	if err == nil && n != 1 {
		err = errNotReleased
	}
	return err
}

func (j *parking) title() string { return "Polling" }

func (j *parking) measure(b *bench, i int) error {
	return j.lock(b, i, j.time+stallAfter, drive{oneLock: true, time: j.time, rest: pollRest,
		inside: func(locker) error { time.Sleep(pollHold); return nil }})
}

// longestWait is in seconds; of those that were never served it is the time that they have waited.
func (j *parking) longestWait(o *outcome) float64 {
	if o.stalled() > 0 {
		return (j.time + stallAfter).Seconds()
	}
	return o.longestWait() / 1000
}

func (j *parking) sections() []*section {
	s := &section{
		title: fmt.Sprintf("One lock, %d clients that poll", j.clients),
		before: fmt.Sprintf("Each client asks for the lock by SET NX PX every %v, which is what "+
			"redis-py's Lock does, holds it for %v, releases it by compare-and-delete, and comes "+
			"back after %v, for %v. Those who still wait then are given %v more; a client that "+
			"was not served even then is counted as stalled. Commands (those that scripts call as "+
			"well) and Redis CPU are per acquisition. A violation is two clients inside at once.",
			pollPause, pollHold, pollRest, j.time, stallAfter),
		header: []string{"", "acquisitions/s", "longest wait s", "mean wait s",
			"fewest/most per client", "Redis commands", "Redis CPU µs", "violations", "stalled"},
	}
	figures := []struct {
		name string
		of   func(*outcome) float64
	}{{"longest wait, s", j.longestWait}, {"Redis commands\nper acquisition", (*outcome).commands},
		{"acquisitions/s", (*outcome).rate}}
	bars := chart.Bars{Title: fmt.Sprintf("One lock, %d clients that poll it every %v", j.clients,
		pollPause), Verb: "%.3g", Log: true}
	for _, f := range figures {
		bars.Groups = append(bars.Groups, f.name)
	}
	for i, way := range j.cases() {
		rounds := j.results[i]
		series := chart.Series{Name: way, Color: []chart.Color{chart.Plain, chart.Orange,
			chart.Blue}[i]}
		for _, f := range figures {
			series.Values = append(series.Values, stat.Of(over(rounds, f.of)))
		}
		bars.Series = append(bars.Series, series)
		violations, stalled := 0, 0
		for _, o := range rounds {
			violations += o.violations
			stalled += o.stalled()
		}
		s.row(way, spread(rounds, "%.0f", (*outcome).rate), spread(rounds, "%.1f", j.longestWait),
			middle(rounds, "%.2f", func(o *outcome) float64 { return o.meanWait() / 1000 }),
			middle(rounds, "%.2f", (*outcome).fairness),
			spread(rounds, "%.1f", (*outcome).commands), middle(rounds, "%.0f", (*outcome).cpu),
			fmt.Sprint(violations), fmt.Sprint(stalled))
	}
	s.figures = []figure{{"polling", "The longest wait, Redis commands per acquisition, and " +
		"acquisitions per second, from the table below", bars}}
	return []*section{s}
}
