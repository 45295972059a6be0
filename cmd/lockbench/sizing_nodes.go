package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"lockproxy/internal/slot"
)

// footprint is what clients and locks take: memory and connections.
type footprint struct {
	clients, locks int
	results        []*footprintRun
}

// footprintRun is bytes for each, but for the last three.
type footprintRun struct {
	idle, home, waiter, held float64 // in the proxy; home is an idle client that has one
	connection, lock         float64 // in Redis: of a connection at one node, of a held lock
	own, withHomes           float64 // connections at one node: no client has a home, all have
	scripts                  float64 // a second, while all clients wait for one lock
}

var footprints = []int{1, 3, 6} // masters

// ownConns is how many connections a proxy has to each node that are no client's, a lane and four
// spares. At one node there is one more, for requests of its own.
const ownConns = 5

func (j *footprint) title() string { return "Memory" }

func (j *footprint) cases() []string {
	return over(footprints, func(masters int) string { return count(masters, "master") })
}

func (j *footprint) measure(b *bench, i int) error {
	masters := footprints[i]
	inner, err := b.open(needs{masters: masters})
	if err != nil {
		return err
	}
	defer inner.close()
	proxy, err := inner.startLockproxy(inner.masters.url())
	if err != nil {
		return err
	}
	inner.proxies = []string{proxy.addr}
	f := inner.field(maxRun)
	defer f.close()
	// what there is once n new clients have asked for something
	with := func(n int, ask func(*rawClient) error, rest time.Duration) (now footing) {
		if err == nil {
			err = f.clients(n, ask)
		}
		if err == nil {
			now, err = inner.footing(proxy, rest)
		}
		return now
	}
	empty := with(1, hold("warm:", 20), settleTime/2)
	locked := with(1, hold("held:", j.locks), settleTime/2)
	idle := with(j.clients, answered("GET", "none"), settleTime)
	// who logs in keeps a home; the default user takes any password
	homes := with(j.clients, answered("AUTH", "default", "any"), 2*settleTime) // Redis shrinks buffers
	with(j.clients, func(c *rawClient) error {
		return c.send("LOCK", "held:0", lockSeconds, "WAIT", "0")
	}, 0)
	if err == nil {
		err = (&waiting{clients: j.clients}).inLine(f, "held:0")
	}
	if err != nil {
		return err
	}
	used, err := inner.during(func() error { time.Sleep(2 * idleTime); return b.ctx.Err() })
	lined := with(0, nil, 0)
	idleBytes := each(idle.front-locked.front, j.clients)
	j.results[i] = &footprintRun{held: each(locked.front-empty.front, j.locks),
		lock: each(locked.redis-empty.redis, j.locks), idle: idleBytes,
		home:       each(homes.front-idle.front, j.clients),
		waiter:     each(lined.front-homes.front, j.clients) - idleBytes,
		connection: each(homes.redis-idle.redis, j.clients*masters),
		own:        each(idle.connections, masters), withHomes: each(homes.connections, masters),
		scripts: float64(used.scripts) / (2 * idleTime).Seconds()}
	return err
}

// clients has n new clients ask for something.
func (f *field) clients(n int, ask func(*rawClient) error) error {
	for range n {
		c, err := dial(f.proxies[0])
		if err != nil {
			return err
		}
		f.closers = append(f.closers, c.close)
		if err := ask(c); err != nil {
			return err
		}
	}
	return nil
}

func answered(command ...string) func(*rawClient) error {
	return func(c *rawClient) error {
		_, err := c.do(command...)
		return err
	}
}

// hold takes n locks for good.
func hold(prefix string, n int) func(*rawClient) error {
	return func(c *rawClient) error {
		for i := range n {
			if token, err := c.number("LOCK", fmt.Sprint(prefix, i), lockSeconds); err != nil ||
				token == 0 {
				return fmt.Errorf("lock %d: token %d: %w", i, token, err)
			}
		}
		return nil
	}
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
