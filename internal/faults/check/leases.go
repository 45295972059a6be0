//go:build linux

package check

import (
	"cmp"
	"slices"

	"lockproxy/internal/faults/history"
)

// grant is a lock for as long as its holder can rely on it.
type grant struct {
	op       history.Op // the LOCK
	from, to int64      // when it is certainly held
	session  bool
}

// forever is when a session lock ends by itself.
const forever = int64(1) << 62

// grantsOf returns the locks that were given, one for each token, without regard to faults.
func grantsOf(ops []history.Op) []grant {
	byToken := map[int64]int{}
	var grants []grant
	for _, o := range ops {
		if o.Acquired() {
			until := o.Call + o.Timeout
			if o.Session {
				until = forever
			}
			if i, again := byToken[o.Result]; again { // by its owner, which never shortens it
				grants[i].to = max(grants[i].to, until)
				continue
			}
			byToken[o.Result] = len(grants)
			grants = append(grants, grant{op: o, from: o.Return, to: until, session: o.Session})
		}
	}
	for _, o := range ops { // ordered by Call
		i, ok := byToken[o.Token]
		if !ok || o.Token == 0 || o.Client != grants[i].op.Client {
			continue
		}
		g := &grants[i]
		switch {
		case o.Kind == history.Unlock || o.Kind == history.Lost:
			g.to = min(g.to, o.Call)
		case o.Kind == history.Relock && g.session && (o.Outcome == history.OK && o.Result == 1 ||
			o.Outcome == history.Unknown):
			// From now on it is renewed with another timeout.
		case o.Kind == history.Relock && o.Outcome == history.OK && o.Result == 1 && o.Call < g.to:
			g.to = o.Call + o.Timeout
		case o.Kind == history.Relock && o.Outcome == history.OK || o.Outcome == history.Fenced:
			g.to = min(g.to, o.Call)
		case o.Kind == history.Relock:
			g.to = min(g.to, o.Call+o.Timeout) // the lease can be shorter now
		}
	}
	slices.SortFunc(grants, func(a, b grant) int { return cmp.Compare(a.from, b.from) })
	return grants
}

// trim takes from a grant the time in which faults have ended it.
func (c *checker) trim(g grant) grant {
	for _, f := range c.faults {
		switch {
		case f.Breaks.Leases && g.op.Call < f.To && g.to > f.From, f.Breaks.Notices && g.session &&
			g.from < f.To && g.to > f.From && f.Concerns(g.op):
			g.to = f.From
		}
	}
	return g
}

// exclusion finds holders that overlap, and holders that were
// told too early that their lock was gone.
func (c *checker) exclusion(key string, ops []history.Op, grants []grant) {
	var last grant
	for _, g := range grants {
		g = c.trim(g)
		if g.to <= g.from {
			continue
		}
		c.checked("exclusion")
		allowed := c.bounds.Lease
		if last.session || g.session {
			allowed = c.bounds.Notice
		}
		if overlap := min(last.to, g.to) - g.from; overlap > allowed.Nanoseconds() {
			c.violated("exclusion", []history.Op{last.op, g.op},
				"lock %s was held by client %d (token %d) and client %d (token %d) for %.3f ms",
				key, last.op.Client, last.op.Result, g.op.Client, g.op.Result, float64(overlap)/1e6)
		}
		if g.to > last.to {
			last = g
		}
	}
	c.lost(key, ops, grants)
}

// lost finds a holder that was refused although it could rely on its lock.
func (c *checker) lost(key string, ops []history.Op, grants []grant) {
	released := map[int64]bool{}
	relocked := map[int64]int64{}
	byToken := map[int64]grant{}
	for _, g := range grants {
		byToken[g.op.Result] = g
	}
	for _, o := range ops {
		g, ok := byToken[o.Token]
		if !ok || o.Token == 0 || o.Client != g.op.Client {
			continue
		}
		until := g.op.Call + g.op.Timeout
		if at, ok := relocked[o.Token]; ok {
			until = at
		}
		refused := o.Outcome == history.Fenced || o.Outcome == history.OK && o.Result == 0 &&
			(o.Kind == history.Unlock || o.Kind == history.Relock)
		if refused && o.Return < until-c.bounds.Lease.Nanoseconds() && !released[o.Token] &&
			!c.broken(g.op.Call, o.Return, breaksLeases, 0) {
			c.violated("lost", []history.Op{g.op, o},
				"client %d was refused a %s of lock %s with token %d, its own for %.3f s more",
				o.Client, o.Kind, key, o.Token, float64(until-o.Return)/1e9)
		}
		c.checked("lost")
		switch o.Kind {
		case history.Unlock, history.Lost:
			released[o.Token] = true
		case history.Relock:
			relocked[o.Token] = min(until, o.Call+o.Timeout)
		}
	}
}
