//go:build linux

package check

import (
	"time"

	"lockproxy/internal/test/faults/history"
)

// turns finds a waiter that was passed over for later waiters of other proxies more than twice as
// often as there are clients: each proxy has a turn before the waiter's. And it finds proxies that
// have less than half of their share.
func (c *checker) turns(key string, ops []history.Op) {
	clients, proxies := map[int]bool{}, map[int]bool{}
	given := map[int64]bool{}
	var grants []history.Op
	for i, o := range ops {
		clients[o.Client] = true
		o.Call = came(ops, i)
		if o.Acquired() && !given[o.Result] { // an owner can be given its lock again
			given[o.Result], proxies[o.Proxy] = true, true
			grants = append(grants, o)
		}
	}
	had := map[int]int{}                    // by proxy: of its waits, those that got the lock
	others := map[int]map[history.Op]bool{} // by proxy: the grants elsewhere while one waited there
	for _, o := range ops {
		if o.Again && o.Acquired() {
			had[o.Proxy]++
		}
		if o.Kind != history.Lock || !o.Wait || o.HungUp || o.Return == 0 ||
			o.Outcome == history.Refused ||
			c.messageLate(o, o, o.Call, o.Return) || c.excusesWait(o.Call, 0, o) {
			continue
		}
		c.checked("turns")
		if others[o.Proxy] == nil {
			others[o.Proxy] = map[history.Op]bool{}
		}
		if o.Acquired() {
			had[o.Proxy]++
		}
		passed := 0
		for _, g := range grants {
			if g.Proxy != o.Proxy && g.Return < o.Return &&
				c.wellBefore(max(o.Call, o.Sent), g.Call, o.Proxy) {
				passed++
				others[o.Proxy][g] = true
			}
		}
		if passed > 2*len(clients) {
			c.violated("turns", []history.Op{o},
				"client %d waited for lock %s at proxy %d for %.3f s, and %d later ones had it",
				o.Client, key, o.Proxy, float64(o.Return-o.Call)/1e9, passed)
		}
	}
	if len(sharedTokens(ops)) > 0 { // several have a turn together
		return
	}
	for proxy, passed := range others {
		s := proxyShare{had[proxy], len(passed),
			float64(had[proxy]+len(passed)) / float64(len(proxies))}
		c.share(key, proxy, s)
		all := c.shares[proxy]
		c.shares[proxy] = proxyShare{all.had + s.had, all.others + s.others, all.fair + s.fair}
	}
}

// proxyShare is what a proxy was given of locks for which its clients waited.
type proxyShare struct {
	had    int     // its grants
	others int     // those elsewhere to clients that came later
	fair   float64 // its fair share of all
}

// enoughGrants is of how many a proxy's share says something.
const enoughGrants = 40

// share finds that a proxy had less than half of its share of some locks while its clients waited.
func (c *checker) share(of string, proxy int, s proxyShare) {
	if s.had+s.others < enoughGrants {
		return
	}
	c.checked("share")
	if 2*float64(s.had) < s.fair {
		c.violated("share", nil, "%s: proxy %d was given %d, while later ones were given %d elsewhere",
			of, proxy, s.had, s.others)
	}
}

// recently is for how long before a LOCK a proxy must have worked to keep its waiters listed. It is
// how long the record believes that a proxy has waiters.
const recently = time.Second

// overtaken finds waiters that a LOCK without WAIT, which came well after them, has overtaken.
func (c *checker) overtaken(key string, ops []history.Op) {
	var waits []history.Op
	var first []int64 // since when each was the first of its proxy
	for _, o := range ops {
		if o.Kind == history.Lock && o.Wait && !o.HungUp && o.Return != 0 && o.Owner == "" &&
			o.Outcome != history.Refused {
			waits = append(waits, o)
			first = append(first, c.first(o, ops))
		}
	}
	for _, o := range ops {
		if o.Kind != history.Lock || o.Wait || o.Again || !o.Acquired() || o.Owner != "" {
			continue
		}
		c.checked("overtaken")
		for i := range waits {
			if !c.overtakes(o, waits[i], first[i]) {
				continue
			}
			c.violated("overtaken", []history.Op{waits[i], o},
				"lock %s: client %d at proxy %d did not wait and got token %d, client %d at proxy %d "+
					"waited for it", key, o.Client, o.Proxy, o.Result, waits[i].Client, waits[i].Proxy)
			break
		}
	}
}

// asksNext is how long after those before it were served a waiter asks, at the latest.
const asksNext = 250 * time.Millisecond

// first is since when a proxy has found the lock held for a waiter: when those before it there were
// served.
func (c *checker) first(w history.Op, ops []history.Op) int64 {
	came := max(w.Call, w.Sent)
	since := came
	for _, o := range ops {
		if o.Kind == history.Lock && o.Wait && o.Acquired() && o.Proxy == w.Proxy &&
			o.Call < came+c.bounds.Arrival.Nanoseconds() && o.Return > came && o.Return < w.Return {
			since = max(since, o.Return+asksNext.Nanoseconds())
		}
	}
	for _, p := range c.placesOf(w.Key) {
		if p.op.Proxy == w.Proxy && p.came < came+c.bounds.Arrival.Nanoseconds() && p.to > came {
			since = max(since, later(p.to, asksNext.Nanoseconds()))
		}
	}
	return since
}

func (c *checker) overtakes(o, w history.Op, began int64) bool {
	margin := c.bounds.Arrival.Nanoseconds()
	lists := c.worked(o.Call-recently.Nanoseconds(), o.Call, w.Proxy) > recently.Nanoseconds()/2
	return lists && w.Return > o.Return+margin && c.wellBefore(began, o.Call, w.Proxy) &&
		!c.broken(w.Call, o.Return, breaksLeases) && !c.broken(began, o.Return, breaksListing) &&
		!c.messageLate(o, w, began, o.Return) &&
		!c.excusesWait(began, 0, w)
}
