//go:build linux

package check

import (
	"slices"
	"time"

	"lockproxy/internal/faults/history"
)

// fifo finds waiters that were served before another that had waited longer at the same proxy.
func (c *checker) fifo(key string, ops []history.Op) {
	margin := c.bounds.Arrival.Nanoseconds()
	var waits []history.Op
	for _, o := range ops {
		if o.Wait && o.Acquired() && o.Kind == history.Lock && o.Owner == "" {
			waits = append(waits, o)
		}
	}
	for i, a := range waits {
		for _, b := range waits[i+1:] {
			if b.Call > a.Return {
				break
			}
			began := max(a.Call, a.Sent)
			if b.Proxy != a.Proxy || b.Call-began < margin ||
				c.messageLate(a, b, a.Call-margin, max(a.Return, b.Return)) ||
				c.broken(a.Call, b.Call, breaksArrival, 0) {
				continue
			}
			c.checked("fifo")
			if b.Result < a.Result && !c.broken(a.Call, b.Return, breaksTokens, 0) {
				c.violated("fifo", []history.Op{a, b},
					"lock %s at proxy %d: client %d came %.3f s after client %d, but was first",
					key, a.Proxy, b.Client, float64(b.Call-began)/1e9, a.Client)
			}
		}
	}
}

// messageLate reports whether a message of one of two clients of a proxy can have been late,
// between two times, for a reason that does not concern the other.
func (c *checker) messageLate(a, b history.Op, from, to int64) bool {
	return slices.ContainsFunc(c.faults, func(f history.Fault) bool {
		return f.Breaks.Notices && f.From <= to && f.To+c.bounds.Recover.Nanoseconds() >= from &&
			(f.Concerns(a) || f.Concerns(b))
	})
}

// span is an interval of time.
type span struct{ from, to int64 }

// idle finds a lock that was unheld for long while a client
// waited for it, and one that was given late.
func (c *checker) idle(key string, ops []history.Op) {
	held, left := c.held(ops)
	alone := held
	orphan := int64(0) // how long a lock given to a dead client can stay
	for _, o := range ops {
		if o.HungUp {
			orphan = max(orphan, o.Timeout)
		}
	}
	for _, o := range ops {
		if o.Kind != history.Lock && o.Kind != history.Probe || !o.Wait || o.HungUp ||
			o.Return == 0 || o.Outcome == history.Refused {
			continue
		}
		if o.With != "" {
			held = append(slices.Clone(alone), c.heldWith(o)...)
		} else {
			held = alone
		}
		from := lastHeld(o, held)
		c.checked("idle")
		if c.excusesWait(from, orphan, o) {
			continue
		}
		if gap := o.Return - from - c.stalled(from, o.Return) - c.resetLeases(ops, from,
			o.Return); gap > c.bounds.Idle.Nanoseconds() {
			c.violated("idle", []history.Op{o},
				"client %d waited for lock %s at proxy %d although it had not been held for %.3f s",
				o.Client, key, o.Proxy, float64(gap)/1e9)
		}
		if from = max(from, lastHeld(o, left)); o.With != "" ||
			c.messageLate(o, o, from, o.Return) {
			continue // it can have been given in time and reported late
		}
		c.checked("late")
		gap := o.Return - from - c.stalled(from, o.Return)
		c.report.Longest = max(c.report.Longest, time.Duration(gap))
		if gap > c.bounds.Grant.Nanoseconds() {
			c.violated("late", []history.Op{o},
				"client %d waited for lock %s at proxy %d although it had been free for %.3f s",
				o.Client, key, o.Proxy, float64(gap)/1e9)
		}
	}
}

// heldWith are the times at which another client kept the other lock of a LOCKALL from it.
func (c *checker) heldWith(o history.Op) []span {
	others := slices.DeleteFunc(slices.Clone(c.locks[o.With]), func(other history.Op) bool {
		return other.With == o.Key && other.Client == o.Client && other.Result == o.Result &&
			other.Outcome == o.Outcome
	})
	held, _ := c.held(others)
	return held
}

// mostResets is how many locks of clients that were reset can follow one another between two polls.
const mostResets = 3

// resetLeases is how long, between from and to, the lock can have been held for clients that were
// reset: each can have read its token, and then keeps the lock until its short timeout.
func (c *checker) resetLeases(ops []history.Op, from, to int64) (sum int64) {
	n := 0
	for _, o := range ops {
		short := o.Kind == history.Lock && o.HungUp && o.Timeout < c.bounds.Idle.Nanoseconds()
		if short && o.Left+o.Timeout > from && o.Left < to && n < mostResets {
			n++
			sum += o.Timeout
		}
	}
	return sum
}

// held are the times at which the lock was, or can have been, held. A LOCKALL that waits for
// another lock counts, since those that came later wait for it. left are those, and those at which
// it can have been held for a client that left without reading the reply.
func (c *checker) held(ops []history.Op) (held, left []span) {
	for _, o := range ops {
		until, gone := c.vanished(o)
		switch {
		case o.Kind != history.Lock && o.Kind != history.Probe:
		case o.Acquired():
			held = append(held, span{o.Call, c.latestEnd(o, ops)})
		case o.With != "" && o.Wait && o.Return != 0:
			held = append(held, span{o.Call, o.Return})
		case o.HungUp && !(gone && c.noticed(o, o.Left) > o.Left):
			left = append(left, span{o.Call, o.Left + o.Timeout})
		case o.Outcome == history.Unknown && gone:
			held = append(held, span{o.Call, until + c.bounds.Leave.Nanoseconds() + o.Timeout})
		case o.Outcome == history.Unknown:
			// a reply can have been on its way to a client that gave up
			until := o.Call + o.Timeout + (5 * c.bounds.Idle).Nanoseconds()
			held = append(held, span{o.Call, until})
		}
	}
	return held, append(left, held...)
}

// lastHeld is the latest time before o's reply at which the lock was held, but not before o began.
func lastHeld(o history.Op, held []span) int64 {
	from := o.Call
	for moved := true; moved; {
		moved = false
		for _, h := range held {
			own := h.from == o.Call && (o.Acquired() || o.With != "")
			if h.from < o.Return && h.to > from && !own {
				from, moved = h.to, true
			}
		}
	}
	return from
}

// excusesWait reports whether faults can have kept a lock from o since a time.
func (c *checker) excusesWait(from, orphan int64, o history.Op) bool {
	return c.broken(from, o.Return, breaksService, c.bounds.Recover) ||
		c.broken(from-orphan, o.Return, breaksOrphans, c.bounds.Recover)
}

// vanished is until when a client whose machine is gone for
// good can keep a lock that is renewed for it.
func (c *checker) vanished(o history.Op) (until int64, gone bool) {
	for _, f := range c.faults {
		if until = f.From + c.bounds.Vanish.Nanoseconds(); f.Breaks.Vanishes && f.Concerns(o) &&
			f.To > until {
			return until, true
		}
	}
	return 0, false
}

// turns finds a waiter that was passed over for later waiters of other proxies more than twice as
// often as there are clients: each proxy has a turn before the waiter's.
func (c *checker) turns(key string, ops []history.Op) {
	margin := c.bounds.Arrival.Nanoseconds()
	clients := map[int]bool{}
	given := map[int64]bool{}
	var grants []history.Op
	for _, o := range ops {
		clients[o.Client] = true
		if o.Acquired() && !given[o.Result] { // an owner can be given its lock again
			given[o.Result] = true
			grants = append(grants, o)
		}
	}
	for _, o := range ops {
		if o.Kind != history.Lock || !o.Wait || o.HungUp || o.Return == 0 ||
			o.Outcome == history.Refused ||
			c.messageLate(o, o, o.Call, o.Return) || c.excusesWait(o.Call, 0, o) {
			continue
		}
		c.checked("turns")
		passed := 0
		for _, g := range grants {
			if g.Proxy != o.Proxy && g.Call > max(o.Call, o.Sent)+margin && g.Return < o.Return {
				passed++
			}
		}
		if passed > 2*len(clients) {
			c.violated("turns", []history.Op{o},
				"client %d waited for lock %s at proxy %d for %.3f s, and %d later ones had it",
				o.Client, key, o.Proxy, float64(o.Return-o.Call)/1e9, passed)
		}
	}
}

// stalled is how long the machine stood still between two times: no lock is given then.
func (c *checker) stalled(from, to int64) (sum int64) {
	for _, f := range c.faults {
		if f.Breaks.Arrival {
			sum += max(0, min(f.To, to)-max(f.From, from))
		}
	}
	return sum
}

// noticed is when at the latest the proxy knows that o's client gave up its connection at a time. A
// machine whose link is down cannot say so. Once the link is up again, TCP says it within as long
// as the link was down.
func (c *checker) noticed(o history.Op, at int64) int64 {
	latest := at
	for _, f := range c.faults {
		if f.Breaks.Vanishes && f.Concerns(o) && f.From <= at && at < f.To {
			latest = max(latest, min(f.From+c.bounds.Vanish.Nanoseconds(), f.To+(f.To-f.From)))
		}
	}
	return latest
}

// latestEnd is when at the latest an acquired lock had ended, if the service works.
func (c *checker) latestEnd(o history.Op, ops []history.Op) int64 {
	until, gone := c.vanished(o)
	end := c.ends(o, ops)
	if o.Session && gone {
		end = min(end, max(until, o.Return+o.Timeout))
	}
	return end
}

// ends is latestEnd for a client whose machine stays.
func (c *checker) ends(o history.Op, ops []history.Op) int64 {
	end := o.Return + o.Timeout
	for _, other := range ops {
		if other.Token != o.Result || other.Client != o.Client {
			continue
		}
		switch {
		case other.Kind == history.Unlock && other.Outcome == history.OK:
			return max(other.Return, other.Call)
		case other.Kind == history.Lost && o.Session:
			return c.noticed(o, other.Call)
		case other.Kind == history.Relock && other.Return != 0:
			end = max(end, other.Return+other.Timeout)
		case other.Kind == history.Relock:
			end = max(end, other.Call+2*other.Timeout)
		case o.Session && other.Return != 0:
			end = max(end, other.Return+o.Timeout) // renewed until then at least
		}
	}
	if o.Session {
		end += 10 * o.Timeout // renewed while its connection was open, which is not known here
	}
	return end
}
