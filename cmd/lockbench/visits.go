package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// visitKind says how a client connects before its GET.
type visitKind int

const (
	noLogin visitKind = iota
	withAuth
	withSelect
	tlsUpstream // no login; TLS to Redis
)

var visitKinds = []string{"no login", "AUTH", "AUTH and SELECT", "TLS to Redis"}

// A client logs in as visitUser, and reads visitKey.
const visitUser, visitPassword, visitKey = "visitor", "secret", "lockbench:value"

// visitsSuite is clients that connect, ask for one value and close, as each page of PHP and each
// call of a serverless function does.
func visitsSuite(quick bool) *suite {
	run, rounds := 600*time.Millisecond, 5
	if quick {
		run, rounds = 300*time.Millisecond, 3
	}
	return &suite{name: "visits", title: "Connect, GET, close", rounds: rounds, others: true,
		needs: needs{haproxy: true, twemproxy: true, tls: true}, base: viaHAProxy,
		about: fmt.Sprintf("Clients that connect, ask for one value and close, again and again for "+
			"%v; some log in first, and choose a database. With TLS to Redis, a direct client uses "+
			"TLS, and a proxy uses it for clients without TLS. Connections are those that Redis "+
			"gets for each visit. twemproxy knows one login for all, no databases, and no TLS.", run),
		columns: []column{{"visits/s", "%.0f", true}, {"p99 ms", "%.2f", false},
			{"connections", "%.2f", false}, {"proxy CPU", "%.0f", false}, {"Redis CPU", "%.0f", false}},
		cases: func(l *lab) (list []benchCase) {
			for kind, name := range visitKinds {
				for _, n := range []int{1, 20, 200} {
					for _, way := range l.waysWith(viaDirect, viaHAProxy, viaTwemproxy) {
						if way == viaTwemproxy && visitKind(kind) != noLogin {
							continue
						}
						list = append(list, benchCase{name + ", " + count(n, "client"), way,
							func(b *bench) (figures, error) {
								return b.visits(way, visitKind(kind), n, run)
							}})
					}
				}
			}
			return list
		}}
}

func (b *bench) visits(way string, kind visitKind, n int, d time.Duration) (figures, error) {
	for _, command := range [][]string{
		{"ACL", "SETUSER", visitUser, "on", ">" + visitPassword, "~*", "+@all"},
		{"SET", visitKey, strings.Repeat("x", usualSize)},
	} {
		if _, err := b.monitors[0].do(command...); err != nil {
			return nil, err
		}
	}
	if kind == tlsUpstream && way != viaDirect {
		way += byTLS
	}
	var all durations
	var rate float64
	used, proxy, err := b.during(way, func() (err error) {
		rate, all, err = b.drive(way, kind, n, d)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case len(all) > used.gets:
		return nil, fmt.Errorf("Redis has seen only %d of %d GETs", used.gets, len(all))
	}
	f := figures{"visits/s": rate, "p99 ms": ms(all.at(0.99)),
		"connections": each(float64(used.connections), len(all)),
		"Redis CPU":   each(us(used.cpu), len(all))}
	if way != viaDirect {
		f["proxy CPU"] = each(us(proxy), len(all))
	}
	return f, nil
}

// drive lets n clients visit until the time has expired.
func (b *bench) drive(way string, kind visitKind, n int, d time.Duration) (rate float64,
	all durations, err error) {
	var mu sync.Mutex
	var running sync.WaitGroup
	began := time.Now()
	for range n {
		running.Go(func() {
			var own durations
			var failed error
			for again := true; again; again = failed == nil && time.Since(began) < d { // at least once
				from := time.Now()
				failed = b.visit(way, kind)
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

func (b *bench) visit(way string, kind visitKind) (err error) {
	var c *client
	if kind == tlsUpstream && way == viaDirect {
		c, err = dialTLS(b.tlsAddr)
	} else {
		c, err = dial(b.ways[way].addr)
	}
	if err != nil {
		return err
	}
	defer c.close()
	if kind == withAuth || kind == withSelect {
		if _, err := c.do("AUTH", visitUser, visitPassword); err != nil {
			return err
		}
	}
	if kind == withSelect {
		if _, err := c.do("SELECT", "1"); err != nil {
			return err
		}
	}
	_, err = c.do("GET", visitKey)
	return err
}
