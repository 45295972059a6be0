//go:build linux

package check

import "lockproxy/internal/test/faults/history"

// edge is a wait of one owner for a lock that another certainly has.
type edge struct {
	wait  history.Op
	has   history.Op
	while span
}

// longestCycle bounds how many owners of one cycle are looked for.
const longestCycle = 5

// missed finds owners that had waited for each other, in a circle, for longer than it takes to find
// that.
func (c *checker) missed(waits []history.Op) {
	edges := map[string][]edge{} // by who waits
	for _, o := range waits {
		if o.Return == 0 {
			continue
		}
		for _, g := range grantsOf(c.locks[o.Key]) {
			g = c.trim(g)
			while := span{max(o.Sent, o.Call, g.from), min(o.Return, g.to)}
			if g.op.Owner != "" && g.op.Owner != o.Owner && c.tooLong(while, o) {
				edges[o.Owner] = append(edges[o.Owner], edge{o, g.op, while})
			}
		}
	}
	for first, list := range edges {
		for _, e := range list {
			c.follow(edges, first, []edge{e})
		}
	}
}

// follow goes on along a path of waits, to the owner with which it has begun. That one has the
// smallest name of all, so that each cycle is found once.
func (c *checker) follow(edges map[string][]edge, first string, path []edge) {
	last := path[len(path)-1]
	if last.has.Owner == first {
		c.missedCycle(path, last.while)
		return
	}
	if last.has.Owner < first || len(path) == longestCycle {
		return
	}
	for _, e := range edges[last.has.Owner] {
		e.while = span{max(e.while.from, last.while.from), min(e.while.to, last.while.to)}
		if c.tooLong(e.while, e.wait) && c.tooLong(e.while, last.wait) {
			c.follow(edges, first, append(path[:len(path):len(path)], e))
		}
	}
}

// tooLong reports whether a deadlock of which o is a part should have been found in a time.
func (c *checker) tooLong(while span, o history.Op) bool {
	bound := c.bounds.Deadlock + c.bounds.Grant
	return while.to > while.from &&
		c.worked(while.from, while.to, o.Proxy) > bound.Nanoseconds()
}

func (c *checker) missedCycle(path []edge, while span) {
	c.checked("deadlock")
	if c.recovering(while.from, while.to, hindersSearches) {
		return
	}
	var ops []history.Op
	text := ""
	for _, e := range path {
		if c.messageLate(e.wait, e.has, while.from, while.to) || !c.tooLong(while, e.wait) {
			return
		}
		ops = append(ops, e.wait, e.has)
		text += e.wait.Owner + " for " + e.wait.Key + ", "
	}
	c.violated("deadlock", ops, "owners waited for each other's locks for %d ms: %sand so on",
		(while.to-while.from)/1e6, text)
}

func hindersSearches(b history.Breaks) bool {
	return b.Leases || b.Service || b.Orphans || b.Searches
}
