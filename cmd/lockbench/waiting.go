package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// waitingSuite is clients that wait for held locks. It shows their costs while nothing happens, and
// how soon they get a lock that is freed. Each case has a Redis and two lockproxies of its own.
func waitingSuite(quick bool) *suite {
	some, many, rounds := 1000, 10000, 3
	if quick {
		some, many, rounds = 100, 1000, 1
	}
	w := waiting{quiet: 5 * time.Second, sample: 200}
	if quick {
		w.quiet, w.sample = 2*time.Second, 20
	}
	s := &suite{name: "waiting", title: "Waiting", rounds: rounds, needs: needs{fresh: true},
		about: fmt.Sprintf("Clients with LOCK … WAIT 0 through one lockproxy, for locks that a "+
			"client of another lockproxy holds. KB and goroutines are for each waiter, beyond those "+
			"of an idle client: RSS is resident memory, and live is the memory that Go has in use "+
			"after a collection. Nothing happens for %v, and processor time is a share of one core. "+
			"With many waiters for a lock, all locks are then released, and each client releases "+
			"its lock at once; all served is the time until the last client has had its turn. With "+
			"a lock for each waiter, %d locks each are freed by UNLOCK at the waiters' lockproxy, "+
			"at another one, by DEL at Redis, and by their timeout; the columns are milliseconds "+
			"until the waiter has its token.", w.quiet, w.sample),
		columns: []column{{"RSS KB", "%.1f", false}, {"live KB", "%.1f", false},
			{"goroutines", "%.2f", false}, {"scripts/s", "%.0f", false},
			{"commands/s", "%.0f", false}, {"Redis CPU %", "%.1f", false},
			{"proxy CPU %", "%.1f", false}, {"all served, s", "%.2f", false}},
	}
	for _, how := range freedHow {
		s.columns = append(s.columns, column{how + " p50", "%.2f", false},
			column{how + " p99", "%.1f", false})
	}
	s.cases = func(l *lab) (list []benchCase) {
		many := l.most(many)
		add := func(clients, locks int) {
			name := fmt.Sprintf("%s, %s", count(clients, "client"), count(locks, "lock"))
			for _, p := range l.proxies {
				w := w
				w.proxy, w.clients, w.locks = p, clients, locks
				list = append(list, benchCase{name, p.name, w.measure})
			}
		}
		add(many, 1)
		add(many, many/100)
		add(some, some)
		add(many, many)
		return list
	}
	return s
}

// freedHow are the ways to free a lock.
var freedHow = []string{"here", "elsewhere", "DEL", "expiry"}

// waiting is one case.
type waiting struct {
	proxy          proxyBinary
	clients, locks int
	quiet          time.Duration
	sample         int // the number of locks that are freed in each way
}

// line is the clients of one run.
type line struct {
	waiting
	*bench
	here, elsewhere *client // hold the locks, by their lockproxies
	tokens          []string
	waiters         clients
	running         sync.WaitGroup
	served          []chan served // of each waiter, with room for one
}

// served is the end of a wait.
type served struct {
	at  time.Time
	err error
}

func (w waiting) measure(shared *bench) (figures, error) {
	b, err := shared.alone(needs{second: true, admin: true}, w.proxy)
	if err != nil {
		return nil, err
	}
	defer b.close()
	l := &line{waiting: w, bench: b}
	defer l.running.Wait() // for the waiters, which end when their connections close
	defer func() { l.waiters.close() }()
	f := figures{}
	if err := l.begin(f); err != nil {
		return nil, err
	}
	defer l.here.close()
	defer l.elsewhere.close()
	if err := l.rest(f); err != nil {
		return nil, err
	}
	if l.locks < l.clients {
		return f, l.handThrough(f)
	}
	return f, l.freeEach(f)
}

// begin lets all clients wait, and measures the memory that a waiter needs beyond an idle client.
func (l *line) begin(f figures) (err error) {
	if l.here, err = dial(l.ways[l.proxy.name].addr); err != nil {
		return err
	}
	if l.elsewhere, err = dial(l.ways[l.proxy.name+viaSecond].addr); err != nil {
		return err
	}
	for i := range l.locks {
		holder := l.elsewhere
		if i < l.sample && l.locks == l.clients {
			holder = l.here
		}
		token, err := holder.number("LOCK", lockName(i), "3600")
		if err != nil {
			return err
		}
		l.tokens = append(l.tokens, strconv.FormatInt(token, 10))
	}
	if l.waiters, err = dialMany(l.ways[l.proxy.name].addr, l.clients); err != nil {
		return err
	}
	idle, err := l.memory()
	if err != nil {
		return err
	}
	l.served = make([]chan served, l.clients)
	for i := range l.served {
		l.served[i] = make(chan served, 1)
		l.wait(i, lockName(i%l.locks))
	}
	if err := l.allWait(); err != nil {
		return err
	}
	waiting, err := l.memory()
	for name := range waiting {
		f[name] = (waiting[name] - idle[name]) / float64(l.clients)
	}
	return err
}

func lockName(i int) string { return "lock:" + strconv.Itoa(i) }

// wait lets a client wait. If the lock has several waiters, the client releases it at once.
func (l *line) wait(i int, name string) {
	c := l.waiters[i]
	l.running.Go(func() {
		token, err := c.number("LOCK", name, "3600", "WAIT", "0")
		if err == nil && token == 0 {
			err = errors.New("the reply to a LOCK with WAIT 0 is null")
		}
		s := served{time.Now(), err}
		if err == nil && l.locks < l.clients {
			_, s.err = c.do("UNLOCK", name, strconv.FormatInt(token, 10))
		}
		l.served[i] <- s
	})
}

// allWait returns when all clients wait.
func (l *line) allWait() error {
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		metrics, err := l.metrics()
		if err != nil {
			return err
		}
		if metrics["lockproxy_lock_waiters"] == float64(l.clients) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after a minute only %v of %d clients wait",
				metrics["lockproxy_lock_waiters"], l.clients)
		}
	}
}

// metrics are the metrics of the waiters' lockproxy that have no labels.
func (l *line) metrics() (map[string]float64, error) {
	text, err := fetch("http://" + l.ways[l.proxy.name].admin + "/metrics")
	values := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			values[name] = n
		}
	}
	return values, err
}

// memory is the memory of the waiters' lockproxy, by the names of columns.
func (l *line) memory() (figures, error) {
	s := l.ways[l.proxy.name]
	if _, err := fetch("http://" + s.admin + "/debug/pprof/heap?gc=1"); err != nil {
		return nil, err
	}
	metrics, err := l.metrics()
	if err != nil {
		return nil, err
	}
	resident, err := s.process().resident()
	return figures{"RSS KB": float64(resident) / 1024, "goroutines": metrics["go_goroutines"],
		"live KB": (metrics["go_memstats_alloc_bytes"] +
			metrics["go_memstats_stack_inuse_bytes"]) / 1024}, err
}

func fetch(url string) (string, error) {
	r, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, r.Status)
	}
	return string(body), err
}

// rest lets nothing happen.
func (l *line) rest(f figures) error {
	used, proxy, err := l.during(l.proxy.name, func() error {
		select {
		case <-l.ctx.Done():
			return l.ctx.Err()
		case <-time.After(l.quiet):
			return nil
		}
	})
	second := l.quiet.Seconds()
	f["scripts/s"], f["commands/s"] = float64(used.scripts)/second, float64(used.commands)/second
	f["Redis CPU %"] = 100 * used.cpu.Seconds() / second
	f["proxy CPU %"] = 100 * proxy.Seconds() / second
	return err
}

// handThrough releases all locks once. Each client then releases the lock that it gets.
func (l *line) handThrough(f figures) error {
	began := time.Now()
	for i, token := range l.tokens {
		if err := free(l.here, lockName(i), token); err != nil {
			return err
		}
	}
	last := began
	for i := range l.served {
		s, err := l.await(i)
		if err != nil {
			return err
		}
		if s.After(last) {
			last = s
		}
	}
	f["all served, s"] = last.Sub(began).Seconds()
	return nil
}

func free(c *client, name, token string) error {
	n, err := c.number("UNLOCK", name, token)
	if err == nil && n != 1 {
		err = fmt.Errorf("UNLOCK says that %s was not held", name)
	}
	return err
}

// await returns when a client has got its lock.
func (l *line) await(i int) (time.Time, error) {
	select {
	case s := <-l.served[i]:
		return s.at, s.err
	case <-l.ctx.Done():
		return time.Time{}, context.Cause(l.ctx)
	case <-time.After(time.Minute):
		return time.Time{}, fmt.Errorf("client %d got no lock within a minute", i)
	}
}

// freeEach frees some of the locks in each of the ways.
func (l *line) freeEach(f figures) error {
	keep := func(how string, took durations) {
		slices.Sort(took)
		f[how+" p50"], f[how+" p99"] = ms(took.at(0.5)), ms(took.at(0.99))
	}
	for k, how := range freedHow[:3] {
		var took durations
		for i := k * l.sample; i < (k+1)*l.sample; i++ {
			time.Sleep(apart)
			began := time.Now()
			if err := l.free(how, i); err != nil {
				return err
			}
			at, err := l.await(i)
			if err != nil {
				return fmt.Errorf("a lock freed by %s: %w", how, err)
			}
			took = append(took, at.Sub(began))
		}
		keep(how, took)
	}
	took, err := l.expire()
	keep(freedHow[3], took)
	return err
}

// apart is the pause before each release.
const apart = 5 * time.Millisecond

func (l *line) free(how string, i int) error {
	switch how {
	case "here":
		return free(l.here, lockName(i), l.tokens[i])
	case "elsewhere":
		return free(l.elsewhere, lockName(i), l.tokens[i])
	}
	_, err := l.monitors[0].do("DEL", lockName(i))
	return err
}

// expire lets served clients wait for locks that expire one after the other.
func (l *line) expire() (took durations, err error) {
	name := func(i int) string { return "expires:" + strconv.Itoa(i) }
	ends := make([]time.Time, l.sample)
	for i := 0; i < len(ends); i++ {
		timeout := 2 + float64(i)*2*apart.Seconds()
		if _, err := l.elsewhere.number("LOCK", name(i), fmt.Sprintf("%.3f", timeout)); err != nil {
			return nil, err
		}
		value, err := l.monitors[0].do("GET", name(i)) // in milliseconds, by the clock of the machine
		if err != nil {
			return nil, err
		}
		if value.null { // a stall of the machine has outlasted the lock
			i--
			continue
		}
		end, err := strconv.ParseInt(value.text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("cannot read the end of a lock: %w", err)
		}
		ends[i] = time.UnixMilli(end)
		l.wait(i, name(i))
	}
	for i, end := range ends {
		at, err := l.await(i)
		if err != nil {
			return nil, fmt.Errorf("a lock that expired: %w", err)
		}
		took = append(took, at.Sub(end))
	}
	return took, nil
}
