package main

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// visits are clients that connect, ask for one value and close, again and again, as each page of
// PHP and each call of a serverless function does.
type visits struct {
	time    time.Duration
	kinds   []visitKind
	results runs[visited] // of each kind, by each of allWays
}

// visitKind is a number of clients, and what each of them does before its GET.
type visitKind struct {
	clients int
	login   visitLogin
}

// visitLogin is how a client begins.
type visitLogin int

const (
	noLogin     visitLogin = iota
	withAuth               // AUTH
	withSelect             // AUTH and SELECT
	tlsUpstream            // no login; Redis is reached with TLS
)

var visitLogins = []string{"no login", "AUTH", "AUTH, SELECT", "TLS to Redis"}

func (k visitKind) String() string {
	return fmt.Sprintf("%s, %s", count(k.clients, "client"), visitLogins[k.login])
}

// possible reports whether a way can do that: twemproxy knows one login for all, no databases, and
// no TLS.
func (k visitKind) possible(way int) bool {
	return k.login == noLogin || allWays[way] != viaTwemproxy
}

// visited is one run.
type visited struct {
	rate      float64 // visits/s
	redis     time.Duration
	connects  float64 // connections that Redis has got for each visit
	latencies durations
}

func visitsPart(quick bool) *part {
	j := &visits{time: 600 * time.Millisecond}
	p := &part{rounds: 7, needs: needs{targets: allWays, tls: true}, others: true, jobs: []job{j}}
	if quick {
		p.rounds, j.time = 3, 300*time.Millisecond
	}
	for login := range visitLogins {
		for _, clients := range []int{1, 20, 200} {
			j.kinds = append(j.kinds, visitKind{clients, visitLogin(login)})
		}
	}
	j.results = make(runs[visited], len(j.cases()))
	return p
}

func (j *visits) title() string   { return "Connect, GET, close" }
func (j *visits) group() int      { return len(allWays) }
func (j *visits) cases() []string { return byWays(j.kinds, allWays) }

func (j *visits) measure(b *bench, i int) error {
	k, way := j.kinds[i/len(allWays)], i%len(allWays)
	if !k.possible(way) {
		return nil
	}
	t := b.targets[way]
	if k.login == tlsUpstream {
		t = b.byTLS[way]
	}
	result, err := j.visit(b, t, k)
	return j.results.keep(b, i, t, k.String(), result, err)
}

// visitUser logs in, where clients do.
const visitUser, visitPassword = "visitor", "secret"

func (j *visits) visit(b *bench, t *target, k visitKind) (*visited, error) {
	if _, err := b.monitor.do("ACL", "SETUSER", visitUser, "on", ">"+visitPassword, "~*",
		"+@all"); err != nil {
		return nil, err
	}
	if _, err := b.getPlan(); err != nil {
		return nil, err
	}
	before, err := b.monitor.connections()
	if err != nil {
		return nil, err
	}
	var result visited
	used, err := b.during(func() (err error) {
		result.rate, result.latencies, err = j.drive(b, t, k)
		return err
	})
	if err != nil {
		return nil, err
	}
	after, err := b.monitor.connections()
	if err != nil {
		return nil, err
	}
	n := len(result.latencies)
	result.redis = used.cpu / time.Duration(max(n, 1))
	result.connects = per(float64(after-before), n)
	if n > used.gets || n == 0 {
		return nil, fmt.Errorf("Redis has seen %d GETs of %d", used.gets, n)
	}
	return &result, nil
}

// drive has the clients visit until the time has expired.
func (j *visits) drive(b *bench, t *target, k visitKind) (rate float64, all durations, err error) {
	var mu sync.Mutex
	var running sync.WaitGroup
	began := time.Now()
	for range k.clients {
		running.Go(func() {
			var own durations
			var failed error
			for failed == nil && time.Since(began) < j.time {
				from := time.Now()
				failed = b.visit(t, k)
				own = append(own, time.Since(from))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, own...)
			if failed != nil {
				err = failed
			}
		})
	}
	running.Wait()
	slices.Sort(all)
	return float64(len(all)) / time.Since(began).Seconds(), all, err
}

// visit is one.
func (b *bench) visit(t *target, k visitKind) error {
	var c *rawClient
	var err error
	if k.login == tlsUpstream && t.name == viaDirect {
		c, err = dialTLS(b.tlsAddr)
	} else {
		c, err = dial(t.server.addr)
	}
	if err != nil {
		return err
	}
	defer c.close()
	if k.login == withAuth || k.login == withSelect {
		if _, err := c.do("AUTH", visitUser, visitPassword); err != nil {
			return err
		}
	}
	if k.login == withSelect {
		if _, err := c.do("SELECT", "1"); err != nil {
			return err
		}
	}
	_, err = c.do("GET", usualKey)
	return err
}
