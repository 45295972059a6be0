//go:build linux

package check

import (
	"slices"
	"time"

	"lockproxy/internal/test/faults/history"
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
	for _, o := range c.placesServed(key) {
		if o.Owner == "" {
			waits = append(waits, o)
		}
	}
	sortByCall(waits)
	for i, a := range waits {
		for _, b := range waits[i+1:] {
			if b.Call > a.Return {
				break
			}
			began := max(a.Call, a.Sent)
			if b.Proxy != a.Proxy || !c.wellBefore(began, b.Call, a.Proxy) ||
				c.messageLate(a, b, a.Call-margin, max(a.Return, b.Return)) ||
				c.broken(a.Call, b.Call, breaksArrival) ||
				a.Place > 0 && c.broken(a.Call, a.Return, breaksLeases) { // it had its turn
				continue
			}
			c.checked("fifo")
			if b.Result < a.Result && !c.broken(a.Call, b.Return, breaksTokens) {
				c.violated("fifo", []history.Op{a, b},
					"lock %s at proxy %d: client %d came %.3f s after client %d, but was first",
					key, a.Proxy, b.Client, float64(b.Call-began)/1e9, a.Client)
			}
		}
	}
}

// wellBefore reports whether what a client sent to a proxy at a time was there before what another
// sends at a later time. The first can have been on its way meanwhile only for as long as Arrival,
// and for as long as few others were answered there.
func (c *checker) wellBefore(sent, later int64, proxy int) bool {
	margin := c.bounds.Arrival.Nanoseconds()
	return later-sent >= margin && c.worked(sent, later, proxy) >= margin/2
}

// messageLate reports whether a message of one of two clients of a proxy can have been late,
// between two times, for a reason that does not concern the other.
func (c *checker) messageLate(a, b history.Op, from, to int64) bool {
	for i, f := range c.faults {
		if f.Breaks.Notices && f.From <= to && c.over[i] >= from &&
			(f.Concerns(a) || f.Concerns(b)) {
			return true
		}
	}
	return false
}

// span is an interval of time.
type span struct{ from, to int64 }

// idle finds a lock that was unheld for long while a client
// waited for it, and one that was given late.
func (c *checker) idle(key string, ops []history.Op) {
	holds := c.holdsOf(key)
	alone, all := heldIn(holds)
	orphan := int64(0) // how long a lock of a dead client can stay
	for _, o := range ops {
		if o.HungUp || o.Session {
			orphan = max(orphan, o.Timeout)
		}
	}
	for _, o := range append(c.placesUnserved(key), ops...) {
		if o.Kind != history.Lock && o.Kind != history.Probe || !o.Wait || o.HungUp ||
			o.Return == 0 || o.Outcome == history.Refused {
			continue
		}
		held, left := alone, all
		switch {
		case o.With != "":
			held = append(slices.Clone(alone), c.heldWith(o)...)
		case o.Shared:
			held = blocked(o, ops, holds)
			for _, p := range c.placesOf(key) {
				held = append(held, p.span) // in the line, too
			}
			left = held
		}
		from := lastHeld(o, held)
		c.checked("idle")
		if c.excusesWait(from, orphan, o) {
			continue
		}
		if gap := c.waited(from, o) - c.resetLeases(ops, from,
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
		gap := c.waited(from, o)
		c.report.Longest = max(c.report.Longest, time.Duration(gap))
		if gap > c.bounds.Grant.Nanoseconds() {
			c.violated("late", []history.Op{o},
				"client %d waited for lock %s at proxy %d although it had been free for %.3f s",
				o.Client, key, o.Proxy, float64(gap)/1e9)
		}
	}
}

// waited is how long o waited since a time, while the machine worked.
func (c *checker) waited(from int64, o history.Op) int64 {
	return min(o.Return-from-c.stalled(from, o.Return), c.worked(from, o.Return, o.Proxy))
}

// heldWith are the times at which another client kept the other lock of a LOCKALL from it.
func (c *checker) heldWith(o history.Op) []span {
	var list []span
	for _, h := range c.holdsOf(o.With) {
		twin := h.op.With == o.Key && h.op.Client == o.Client && h.op.Result == o.Result &&
			h.op.Outcome == o.Outcome
		if !twin && !h.left {
			list = append(list, h.span)
		}
	}
	return list
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

func later(at, by int64) int64 { return min(at, forever-by) + by }

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
	return c.recovering(from, o.Return, breaksService) ||
		c.recovering(from-orphan, o.Return, breaksOrphans)
}

// vanished is until when a client whose machine is gone for
// good can keep a lock that is renewed for it.
func (c *checker) vanished(o history.Op) (until int64, gone bool) {
	for _, f := range c.faults {
		if !f.Breaks.Vanishes || !f.Concerns(o) {
			continue
		}
		if until = c.after(f.From, c.bounds.Vanish); f.To > until {
			return until, true
		}
	}
	return 0, false
}

// stalled is how long the machine hung between two times: no lock is given then.
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
			latest = max(latest, min(c.after(f.From, c.bounds.Vanish), f.To+(f.To-f.From)))
		}
	}
	return latest
}

// latestEnd is when at the latest an acquired lock had ended, if the service works. ops are those
// that name its token.
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
		case other.Kind == history.Lost && o.Session && (other.Conn != o.Conn || other.Call < o.Call):
			// of another connection, or of one before with the same number
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
