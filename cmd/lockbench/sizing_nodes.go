package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockproxy/cmd/lockbench/load"
	"lockproxy/internal/slot"
)

// footprint is what clients and locks take: memory and connections.
type footprint struct {
	clients, locks int
	results        []*footprintRun
}

// footprintRun is bytes for each, but for the last two.
type footprintRun struct {
	idle, waiter, held  float64 // in the proxy
	connection, lock    float64 // in Redis: of a connection at one node, of a held lock
	connections         float64 // at one node, of all that lockproxy has
	expectedConnections float64
	scripts             float64 // a second, while all clients but one wait for one lock
}

var footprints = []struct {
	masters  int
	homeIdle bool
}{{1, false}, {3, false}, {6, false}, {6, true}}

const (
	homeIdle = "100ms"
	laneAnd  = 5 // connections of a proxy to each node that are no client's: four spares and a lane
)

func (j *footprint) title() string { return "Memory" }

func (j *footprint) cases() (names []string) {
	for _, c := range footprints {
		names = append(names, fmt.Sprintf("%s, --home-idle %v", count(c.masters, "master"),
			c.homeIdle))
	}
	return names
}

func (j *footprint) measure(b *bench, i int) error {
	c := footprints[i]
	inner, err := b.open(needs{masters: c.masters})
	if err != nil {
		return err
	}
	defer inner.close()
	var args []string
	if c.homeIdle {
		args = []string{"--home-idle", homeIdle}
	}
	proxy, err := inner.startLockproxy(inner.masters.url(), args...)
	if err != nil {
		return err
	}
	inner.proxies = []string{proxy.addr}
	f := inner.field(maxRun)
	defer f.close()
	lockers, err := wanderers(1).open(f, 2, nil)
	if err != nil {
		return err
	}
	// two clients at the same time share a lane
	if err := (drive{lockers: lockers}).each(func(i int) error {
		return (drive{lockers: slices.Repeat(lockers[i:i+1], 20)}).warm()
	}); err != nil {
		return err
	}
	empty, err := inner.footing(proxy, settleTime/2)
	if err != nil {
		return err
	}
	holder := lockers[0].(*wanderer)
	for n := range j.locks {
		if token, err := holder.number("LOCK", fmt.Sprint("held:", n), lockSeconds); err != nil ||
			token == 0 {
			return fmt.Errorf("lock %d: token %d: %w", n, token, err)
		}
	}
	locked, err := inner.footing(proxy, settleTime/2)
	if err != nil {
		return err
	}
	clients, err := load.Open(proxy.addr, j.clients)
	if err != nil {
		return err
	}
	defer clients.Close()
	idle, err := inner.footing(proxy, 2*settleTime) // for Redis to shrink buffers
	if err != nil {
		return err
	}
	r := &footprintRun{held: each(locked.front-empty.front, j.locks),
		lock:        each(locked.redis-empty.redis, j.locks),
		idle:        each(idle.front-locked.front, j.clients),
		connection:  each(idle.redis-locked.redis, j.clients*c.masters),
		connections: float64(idle.connections) / float64(c.masters), expectedConnections: laneAnd}
	if !c.homeIdle {
		r.expectedConnections += float64(j.clients + len(lockers))
	}
	if err := inner.queue(f, j.clients); err != nil {
		return err
	}
	used, err := inner.during(func() error { time.Sleep(2 * idleTime); return b.ctx.Err() })
	if err != nil {
		return err
	}
	r.scripts = float64(used.scripts) / (2 * idleTime).Seconds()
	waiting, err := inner.footing(proxy, settleTime/2)
	r.waiter = each(waiting.front-idle.front, j.clients) - r.idle
	j.results[i] = r
	return err
}

// queue has n new clients wait for a lock that is held.
func (b *bench) queue(f *field, n int) error {
	waiters, err := f.raws(n, f.through(1), func(_ int, c *rawClient) locker {
		return &proxyLock{rawClient: c}
	})
	if err != nil {
		return err
	}
	for _, w := range waiters {
		if err := w.(*proxyLock).send("LOCK", "held:0", lockSeconds, "WAIT", "0"); err != nil {
			return err
		}
	}
	return (&waiting{clients: n}).inLine(f, "held:0")
}

// footing is what a proxy and all masters together have at a moment, at rest.
type footing struct{ front, redis, connections int }

func (b *bench) footing(proxy *server, rest time.Duration) (now footing, err error) {
	select {
	case <-b.ctx.Done():
		return now, b.ctx.Err()
	case <-time.After(rest):
	}
	if now.front, err = proxy.process().resident(); err != nil {
		return now, err
	}
	for _, node := range b.masters.monitors {
		info, err := node.do("INFO", "memory")
		if err != nil {
			return now, err
		}
		for name, value := range fields(info.text) {
			if name == "used_memory" {
				n, _ := strconv.Atoi(value)
				now.redis += n
			}
		}
		list, err := node.do("CLIENT", "LIST", "TYPE", "normal")
		if err != nil {
			return now, err
		}
		now.connections += strings.Count(list.text, "\n") - 1 // but for the monitor
	}
	return now, nil
}

// takeover is a master that is killed and replaced by its replica, while clients lock.
type takeover struct {
	variants []takeoverCase
	results  [][]*takeoverRun
}

type takeoverCase struct {
	nodeTimeout  time.Duration
	fullCoverage bool
}

// takeoverRun is how long no lock of the master's could be taken, s, and the rate of the others
// meanwhile, to that before.
type takeoverRun struct{ took, others float64 }

var takeovers = []takeoverCase{{time.Second, false}, {3 * time.Second, false}, {time.Second, true}}

const (
	beatEvery    = 10 * time.Millisecond // of each client
	beatBefore   = 1500 * time.Millisecond
	takeoverEnds = 30 * time.Second
)

func (j *takeover) title() string { return "Failover" }

func (j *takeover) cases() []string {
	return over(j.variants, func(c takeoverCase) string {
		return fmt.Sprintf("node timeout %v, full coverage %v", c.nodeTimeout, c.fullCoverage)
	})
}

func (j *takeover) measure(b *bench, i int) error {
	c := j.variants[i]
	inner, err := b.open(needs{masters: masterCount, replicas: masterCount, lockproxies: 1})
	if err != nil {
		return err
	}
	defer inner.close()
	for _, node := range inner.masters.monitors {
		if _, err := node.do("CONFIG", "SET", "cluster-node-timeout",
			strconv.FormatInt(c.nodeTimeout.Milliseconds(), 10), "cluster-require-full-coverage",
			map[bool]string{true: "yes", false: "no"}[c.fullCoverage]); err != nil {
			return err
		}
	}
	beats := make([][]beat, masterCount)
	stop, recovered := make(chan struct{}), make(chan time.Time, 1)
	var beating sync.WaitGroup
	defer beating.Wait()
	stopAll := sync.OnceFunc(func() { close(stop) })
	defer stopAll()
	for shard := range beats {
		client, err := dial(inner.proxies[0])
		if err != nil {
			return err
		}
		defer client.close()
		beating.Go(func() { // until stop
			beats[shard] = client.beat(shard, stop, func(at time.Time) {
				if shard == 0 {
					recovered <- at
				}
			})
		})
	}
	began := time.Now()
	time.Sleep(beatBefore)
	killed := time.Now()
	inner.masters.nodes[0].cmd.Process.Kill()
	select {
	case back := <-recovered:
		stopAll()
		beating.Wait()
		others := append(beats[1], beats[2]...)
		before, after := rateOf(others, began, killed), rateOf(others, killed, back)
		j.results[i] = append(j.results[i], &takeoverRun{back.Sub(killed).Seconds(),
			after / before})
		return nil
	case <-time.After(takeoverEnds):
		return errors.New("no replica has taken over")
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}

// beat is a lock that was taken and released, or could not be.
type beat struct {
	at time.Time
	ok bool
}

// beat takes and releases new locks of a shard of masterCount, again and again. It calls back the
// first time that it can again.
func (c *rawClient) beat(shard int, stop <-chan struct{}, back func(time.Time)) (beats []beat) {
	failed, told := false, false
	for n := 0; ; n++ {
		key := fmt.Sprint("beat:", shard, ":", n)
		if at := slot.Of([]byte(key)); at < shard*clusterSlots/masterCount ||
			at >= (shard+1)*clusterSlots/masterCount {
			continue
		}
		select {
		case <-stop:
			return beats
		case <-time.After(beatEvery):
		}
		l := &proxyLock{rawClient: c, ask: c.number, key: key}
		err := l.acquire()
		if err == nil {
			err = l.release()
		}
		beats = append(beats, beat{time.Now(), err == nil})
		failed = failed || err != nil
		if failed && !told && err == nil {
			told = true
			back(time.Now())
		}
	}
}

// rateOf is how often a lock was taken between two moments, a second.
func rateOf(beats []beat, from, to time.Time) float64 {
	n := 0
	for _, b := range beats {
		if b.ok && b.at.After(from) && b.at.Before(to) {
			n++
		}
	}
	return float64(n) / to.Sub(from).Seconds()
}
