//go:build linux

package check

import (
	"cmp"
	"slices"
	"strings"

	"lockproxy/internal/test/faults/history"
)

// tokens finds tokens that went back, or were given twice.
func (c *checker) tokens(key string, ops []history.Op) {
	var acquired []history.Op
	for _, o := range ops {
		if o.Acquired() {
			acquired = append(acquired, o)
		}
	}
	byReturn := slices.Clone(acquired)
	slices.SortFunc(byReturn, func(a, b history.Op) int { return cmp.Compare(a.Return, b.Return) })
	owners := map[int64]history.Op{}
	var best history.Op // with the greatest token among those that had ended
	next := 0
	for _, o := range acquired {
		for ; next < len(byReturn) && byReturn[next].Return < o.Call; next++ {
			if byReturn[next].Result > best.Result {
				best = byReturn[next]
			}
		}
		c.checked("tokens")
		if first, given := owners[o.Result]; given && (o.Owner == "" || o.Owner != first.Owner) &&
			!c.broken(first.Call, o.Return, breaksTokens) {
			c.violated("tokens", []history.Op{first, o},
				"token %d of lock %s was given to client %d and to client %d", o.Result, key,
				first.Client, o.Client)
		} else if given {
			// by the same owner: after a loss of data others can have had the lock in between
			continue
		}
		owners[o.Result] = o
		if retaken(o, ops) || c.broughtBack(o, ops) {
			continue
		}
		if best.Result >= o.Result && !c.broken(best.Call, o.Return, breaksTokens) {
			c.violated("tokens", []history.Op{best, o}, "lock %s gave token %d after token %d", key,
				o.Result, best.Result)
		}
	}
}

// retaken reports whether o can have been given the token that an earlier LOCK of its owner has
// taken, whose outcome is not known. Others can have shared the lock since.
func retaken(o history.Op, ops []history.Op) bool {
	return o.Shared && o.Owner != "" && slices.ContainsFunc(ops, func(e history.Op) bool {
		return e.Kind == history.Lock && e.Shared && e.Owner == o.Owner && e.Call < o.Call &&
			e.Outcome == history.Unknown
	})
}

// broughtBack reports whether o can have been given the token that an earlier LOCK of its owner had
// taken: it was undone since too few replicas had confirmed it, and a loss of data undid that.
func (c *checker) broughtBack(o history.Op, ops []history.Op) bool {
	return o.Owner != "" && slices.ContainsFunc(ops, func(e history.Op) bool {
		return e.Kind == history.Lock && e.Owner == o.Owner && e.Call < o.Call &&
			e.Outcome == history.Refused && strings.HasPrefix(e.Got, "NOREPLICAS ") &&
			c.broken(e.Call, o.Return, breaksWrites)
	})
}

// stale finds commands accepted although a greater token had been given before they were sent.
func (c *checker) stale(key string, ops []history.Op, grants []grant) {
	shared := sharedTokens(ops)
	for i, o := range ops {
		if o.Kind == history.Unlock && o.Token == 0 && o.Outcome == history.OK && o.Result != 0 &&
			!c.restored(o, ops) {
			asked := lastAsked(o, ops[:i])
			if !asked.Wait || c.heldByOther(o, grants) {
				c.violated("stale", []history.Op{asked, o},
					"lock %s was released for client %d, which didn't hold it", key, o.Client)
			}
		}
		if !accepted(o) {
			continue
		}
		c.checked("stale")
		for _, g := range ops {
			if g.Acquired() && g.Result > o.Token && g.Return < o.Call &&
				!(g.Shared && shared[o.Token]) && !c.broken(g.Call, o.Return, breaksLeases) {
				c.violated("stale", []history.Op{g, o},
					"lock %s: a %s by client %d with token %d was accepted after token %d",
					key, o.Kind, o.Client, o.Token, g.Result)
				break
			}
		}
	}
}

// lastAsked is the last LOCK of o's client before o, whose wait has ended without the lock. The lock
// can have been given to it late: then its proxy gives the lock back, unless o has done so before.
func lastAsked(o history.Op, before []history.Op) (asked history.Op) {
	for _, e := range before {
		if e.Client == o.Client && e.Kind == history.Lock {
			asked = e
		}
	}
	return asked
}

// heldByOther reports whether another client has certainly held the lock alone throughout o.
func (c *checker) heldByOther(o history.Op, grants []grant) bool {
	return slices.ContainsFunc(grants, func(g grant) bool {
		g = c.trim(g)
		return !g.op.Shared && g.op.Client != o.Client && g.from <= o.Call && g.to >= o.Return
	})
}

// restored reports whether a lock that o's client had released, or held for too long, can be held
// by it again: the acknowledged release was lost, or the clock was set back while others shared the
// lock, whose record then has the expired holder still.
func (c *checker) restored(o history.Op, ops []history.Op) bool {
	return slices.ContainsFunc(ops, func(g history.Op) bool {
		return g.Client == o.Client && g.Acquired() &&
			(c.broken(g.Call, o.Call, breaksWrites) ||
				g.Shared && c.broken(g.Call, o.Call, breaksOrphans))
	})
}

// accepted reports whether o names a token and was done.
func accepted(o history.Op) bool {
	if o.Token == 0 || o.Outcome != history.OK {
		return false
	}
	return o.Kind == history.Fence || (o.Kind == history.Unlock || o.Kind == history.Relock) &&
		o.Result == 1
}

// order finds fenced writes that were accepted after one with a greater token.
func (c *checker) order(key string, ops []history.Op) {
	var writes []history.Op
	for _, o := range ops {
		if o.Kind == history.Fence && o.Outcome == history.OK {
			writes = append(writes, o)
		}
	}
	byReturn := slices.Clone(writes)
	slices.SortFunc(byReturn, func(a, b history.Op) int { return cmp.Compare(a.Return, b.Return) })
	shared := sharedTokens(ops)
	var greatest, exclusive history.Op
	next := 0
	for _, o := range writes {
		for ; next < len(byReturn) && byReturn[next].Return < o.Call; next++ {
			w := byReturn[next]
			if w.Token > greatest.Token {
				greatest = w
			}
			if w.Token > exclusive.Token && !shared[w.Token] {
				exclusive = w
			}
		}
		c.checked("order")
		best := greatest
		if shared[o.Token] {
			best = exclusive
		}
		if best.Token > o.Token && !c.broken(best.Call, o.Return, breaksLeases) {
			c.violated("order", []history.Op{best, o},
				"lock %s: a fenced write with token %d was accepted after one with token %d", key,
				o.Token, best.Token)
		}
	}
}
