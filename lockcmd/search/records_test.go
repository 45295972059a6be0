package search

import (
	"slices"
	"testing"

	"lockproxy/lockcmd/deadlock"
	"lockproxy/lockcmd/lockinfo"
)

// Of the proxies that the record of a lock lists, those go before proxy p for which a shared lock
// is kept and that stand before it. If the lock is free, those do whose LOCKALL has waited longer.
func TestWhoGoesBefore(t *testing.T) {
	exclusive := func(of string, holders int, since int64) deadlock.Earlier {
		return deadlock.Earlier{Proxy: of, As: deadlock.AsExclusive, Holders: holders,
			Listed: since}
	}
	limit := deadlock.Earlier{Proxy: "r", As: deadlock.AsLimit, Holders: 3, Listed: 2}
	all := func(of string, since int64) deadlock.Earlier {
		return deadlock.Earlier{Proxy: of, As: deadlock.AsListed(since), Token: 7}
	}
	q := lockinfo.Proxy{Name: "q", How: "p", Since: 1}
	p := lockinfo.Proxy{Name: "p", How: "p", Since: 3}
	readers := lockinfo.Proxy{Name: "q", How: "ps", Since: 1}
	limited := lockinfo.Proxy{Name: "r", How: "pl", Since: 2}
	last := lockinfo.Proxy{Name: "s", How: "p", Since: 4}
	shared, free := holding{shared: true, count: 3}, holding{free: true, token: 7}
	for name, c := range map[string]struct {
		holding
		listed   []lockinfo.Proxy
		allSince int64
		want     []deadlock.Earlier
	}{
		"a writer first": {shared, []lockinfo.Proxy{q, p}, 0,
			[]deadlock.Earlier{exclusive("q", 1, 1)}},
		"a limit, then a writer": {shared, []lockinfo.Proxy{limited, last, p}, 0,
			[]deadlock.Earlier{limit, exclusive("s", 3, 4)}},
		"readers":        {shared, []lockinfo.Proxy{readers, p}, 0, nil},
		"those behind p": {shared, []lockinfo.Proxy{p, q, limited}, 0, nil},
		"p is not listed": {shared, []lockinfo.Proxy{q}, 0,
			[]deadlock.Earlier{exclusive("q", 1, 1)}},
		"held by one":      {holding{}, []lockinfo.Proxy{q, p}, 0, nil},
		"free, no LOCKALL": {free, []lockinfo.Proxy{q, p}, 0, nil},
		"free, an older LOCKALL": {free, []lockinfo.Proxy{{Name: "q", How: "pa", Since: 2}, p}, 0,
			[]deadlock.Earlier{all("q", 2)}},
		"free, a younger LOCKALL": {free, []lockinfo.Proxy{p, {Name: "q", How: "pa", Since: 4}}, 0,
			nil},
		"free, one as old, by name": {free,
			[]lockinfo.Proxy{{Name: "a", How: "pa", Since: 3}, p}, 0,
			[]deadlock.Earlier{all("a", 3)}},
		"free, p has a LOCKALL that is older": {free,
			[]lockinfo.Proxy{{Name: "q", How: "pa", Since: 2}, p}, 1, nil},
	} {
		c.holding.listed = c.listed
		if got := c.before("p", c.allSince); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
