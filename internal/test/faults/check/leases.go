//go:build linux

package check

import (
	"cmp"
	"slices"

	"lockproxy/internal/test/faults/history"
)

// grant is a lock for as long as its holder can rely on it.
type grant struct {
	op       history.Op // the LOCK
	from, to int64      // when it is certainly held
	session  bool
}

// forever is when a session lock ends by itself.
const forever = int64(1) << 62

// conn names a connection of a client.
type conn struct{ client, conn int }

// grantsOf returns the locks that were given, without regard to faults: one for each token, and
// another when a lock that had ended is given with the same token again, by data that came back or
// to an owner whose connections Redis does not know to be closed. An owner cannot rely on that
// behind an UNLOCK or a RELOCK without an answer, which may still be on its way. A session lock is
// renewed behind a RELOCK.
func grantsOf(ops []history.Op) []grant {
	byToken := map[int64]int{}        // the last grant of each
	late := map[int64]int64{}         // the least that such a request leaves of the lock, by token
	open := map[int64]map[conn]bool{} // connections that have a session lock, by token
	var grants []grant
	for _, o := range ops { // ordered by Call
		if o.Acquired() {
			until := o.Call + o.Timeout
			if o.Session {
				until = forever
			}
			if left, ok := late[o.Result]; ok && (left == 0 || !o.Session) {
				until = min(until, o.Call+left)
			}
			i, again := byToken[o.Result]
			if again = again && o.Call < grants[i].to; again {
				grants[i].to = max(grants[i].to, until) // by its owner, which never shortens it
			} else {
				byToken[o.Result] = len(grants)
				grants = append(grants, grant{op: o, from: o.Return, to: until, session: o.Session})
			}
			if open[o.Result] == nil {
				open[o.Result] = map[conn]bool{}
			}
			if o.Session {
				open[o.Result][conn{o.Client, o.Conn}] = true
			}
			continue
		}
		i, ok := byToken[o.Token]
		if !ok || o.Token == 0 || o.Client != grants[i].op.Client {
			continue
		}
		g := &grants[i]
		if o.Outcome == history.Unknown && (o.Kind == history.Unlock || o.Kind == history.Relock) {
			if left, ok := late[o.Token]; !ok || o.Timeout < left {
				late[o.Token] = o.Timeout // none for UNLOCK
			}
		}
		switch {
		case o.Kind == history.Relock && o.Shared && o.Call < g.to &&
			(o.Outcome == history.OK && o.Result == 1 || o.Outcome == history.Unknown):
			// From now on others can share the lock.
			reader := *g
			if reader.op.Shared, reader.from = true, max(g.from, o.Call); !g.session {
				reader.to = o.Call + o.Timeout
			}
			if o.Outcome == history.Unknown {
				reader.to = min(g.to, reader.to)
			}
			g.to = o.Call
			byToken[o.Token] = len(grants)
			grants = append(grants, reader)
		case o.Kind == history.Unlock:
			g.to = min(g.to, o.Call)
		case o.Kind == history.Lost:
			delete(open[o.Token], conn{o.Client, o.Conn})
			if len(open[o.Token]) == 0 {
				g.to = min(g.to, o.Call)
			}
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

// lossesOf is when session locks, by token, ended with their connections: with the last that had been
// given one. Those that have a connection left are not there.
func lossesOf(ops []history.Op) map[int64]int64 {
	ended := map[int64]map[conn]int64{}
	for _, o := range ops {
		if o.Session && o.Acquired() {
			if ended[o.Result] == nil {
				ended[o.Result] = map[conn]int64{}
			}
			ended[o.Result][conn{o.Client, o.Conn}] = forever
		}
	}
	for _, o := range ops {
		if at, had := ended[o.Token][conn{o.Client, o.Conn}]; had && o.Kind == history.Lost {
			ended[o.Token][conn{o.Client, o.Conn}] = min(at, o.Call)
		}
	}
	losses := map[int64]int64{}
	for token, ends := range ended {
		last := int64(0)
		for _, at := range ends {
			last = max(last, at)
		}
		if last < forever {
			losses[token] = last
		}
	}
	return losses
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
	var exclusive, shared grant // the last of either kind
	for _, g := range grants {
		g = c.trim(g)
		if g.to <= g.from {
			continue
		}
		c.checked("exclusion")
		c.apart(key, exclusive, g)
		if !g.op.Shared {
			c.apart(key, shared, g)
		}
		switch {
		case g.op.Shared && g.to > shared.to:
			shared = g
		case !g.op.Shared && g.to > exclusive.to:
			exclusive = g
		}
	}
	c.limit(key, grants)
	c.lost(key, ops, grants)
}

// apart finds an overlap of two holders. The first got the lock before the second.
func (c *checker) apart(key string, first, g grant) {
	if overlap := min(first.to, g.to) - g.from; c.overlap(first, g) {
		c.violated("exclusion", []history.Op{first.op, g.op},
			"lock %s was held by client %d (token %d) and client %d (token %d) for %.3f ms",
			key, first.op.Client, first.op.Result, g.op.Client, g.op.Result, float64(overlap)/1e6)
	}
}

// overlap reports whether two grants overlap, for longer than it can seem so.
func (c *checker) overlap(first, g grant) bool {
	until := min(first.to, g.to)
	if first.session || g.session {
		return c.worked(g.from, until, first.op.Proxy) > c.bounds.Notice.Nanoseconds()
	}
	return until-g.from > c.bounds.Lease.Nanoseconds()
}

// limit finds a lock that was given up to a number of holders while others were as many. Those with
// a smaller token that still held it after the reply held it when it was given, unless tokens went
// back with lost data.
func (c *checker) limit(key string, grants []grant) {
	trimmed := make([]grant, len(grants))
	for i, g := range grants {
		trimmed[i] = c.trim(g)
	}
	for _, g := range trimmed {
		if g.op.Limit == 0 || g.to <= g.from || c.broken(g.op.Call, g.from, breaksTokens) {
			continue
		}
		c.checked("limit")
		with := []history.Op{g.op}
		for _, h := range trimmed {
			if h.op.Result < g.op.Result && c.overlap(h, g) &&
				!c.broken(min(h.op.Call, g.op.Call), max(h.from, g.from), breaksTokens) {
				with = append(with, h.op)
			}
		}
		if len(with) > g.op.Limit {
			c.violated("limit", with,
				"lock %s was given up to %d holders, as token %d to client %d: "+
					"there are %d", key, g.op.Limit, g.op.Result, g.op.Client, len(with))
		}
	}
}

// sharedTokens are the tokens with which a lock is shared, or may be by RELOCK … SHARED.
func sharedTokens(ops []history.Op) map[int64]bool {
	shared := map[int64]bool{}
	for _, o := range ops {
		if o.Kind == history.Relock && o.Shared && (accepted(o) || o.Outcome == history.Unknown) {
			shared[o.Token] = true
		}
		if o.Acquired() && o.Shared {
			shared[o.Result] = true
		}
	}
	return shared
}

// lost finds a holder that was refused although it could rely on its lock.
func (c *checker) lost(key string, ops []history.Op, grants []grant) {
	released, losses := map[int64]bool{}, lossesOf(ops)
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
			!c.broken(g.op.Call, o.Return, breaksLeases) {
			c.violated("lost", []history.Op{g.op, o},
				"client %d was refused a %s of lock %s with token %d, its own for %.3f s more",
				o.Client, o.Kind, key, o.Token, float64(until-o.Return)/1e9)
		}
		c.checked("lost")
		switch o.Kind {
		case history.Unlock:
			released[o.Token] = true
		case history.Lost:
			if at, ok := losses[o.Token]; ok && o.Call >= at {
				released[o.Token] = true
			}
		case history.Relock:
			relocked[o.Token] = min(until, o.Call+o.Timeout)
		}
	}
}
