//go:build linux

package check

import "lockproxy/internal/test/faults/history"

// owner finds owners that were not given their lock again while they had it, by whichever of their
// connections.
func (c *checker) owner(key string, ops []history.Op, grants []grant) {
	byOwner := map[string][]grant{}
	for _, g := range grants {
		if g = c.trim(g); g.op.Owner != "" && g.to > g.from {
			byOwner[g.op.Owner] = append(byOwner[g.op.Owner], g)
		}
	}
	for _, o := range ops {
		answered := o.Outcome == history.OK || o.Outcome == history.Null
		if o.Kind != history.Lock || o.With != "" || !answered {
			continue
		}
		for _, g := range byOwner[o.Owner] {
			if g.op.Call == o.Call || g.op.Shared != o.Shared || g.from > o.Call || !c.has(g, o.Return) {
				continue
			}
			c.checked("owner")
			if o.Result != g.op.Result {
				c.violated("owner", []history.Op{g.op, o},
					"lock %s was %q's with token %d, who asked again and got %q %d", key, o.Owner,
					g.op.Result, o.Outcome, o.Result)
			}
		}
	}
}

// has reports whether a lock is certainly its holder's at a time.
func (c *checker) has(g grant, at int64) bool {
	if !g.session {
		return at < g.to-c.bounds.Lease.Nanoseconds()
	}
	if lease := g.op.Call + g.op.Timeout; at < lease {
		return at < min(g.to, lease)-c.bounds.Lease.Nanoseconds()
	}
	until := min(g.to, c.ops[len(c.ops)-1].Call)
	return at < until && c.worked(at, until, g.op.Proxy) > c.bounds.Notice.Nanoseconds()
}
