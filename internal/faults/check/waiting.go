//go:build linux

package check

import (
	"slices"

	"lockproxy/internal/faults/history"
)

// fifo finds waiters of one proxy that were served though another had waited there for longer.
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
			if b.Proxy != a.Proxy || b.Call-began < margin || c.unheard(a, b, a.Call-margin, max(a.Return, b.Return)) ||
				c.broken(a.Call, b.Call, breaksArrival, 0) {
				continue
			}
			c.checked("fifo")
			if b.Result < a.Result && !c.broken(a.Call, b.Return, breaksTokens, 0) {
				c.violated("fifo", []history.Op{a, b}, "lock %s at proxy %d: client %d began to wait %.3f s after client %d, and was served before it",
					key, a.Proxy, b.Client, float64(b.Call-began)/1e9, a.Client)
			}
		}
	}
}

// unheard reports whether what one of two clients of a proxy asked or was told, between two times, may have been late for a reason of its own.
func (c *checker) unheard(a, b history.Op, from, to int64) bool {
	return slices.ContainsFunc(c.faults, func(f history.Fault) bool {
		return f.Breaks.Notices && f.From <= to && f.To+c.bounds.Recover.Nanoseconds() >= from && (f.Concerns(a) || f.Concerns(b))
	})
}

// idle finds a lock that nobody held for long though somebody waited for it.
func (c *checker) idle(key string, ops []history.Op) {
	type span struct{ from, to int64 }
	var held []span // when somebody held it, or may have
	for _, o := range ops {
		switch {
		case o.Kind != history.Lock && o.Kind != history.Probe:
		case o.Acquired():
			held = append(held, span{o.Call, c.latestEnd(o, ops)})
		case o.Outcome == history.Unknown && !o.HungUp: // a reply may have been on its way to a client that gave up
			held = append(held, span{o.Call, o.Call + o.Timeout + (5 * c.bounds.Idle).Nanoseconds()})
		}
	}
	orphan := int64(0) // for how long a lock may stay that was given to somebody who has died
	for _, o := range ops {
		if o.HungUp {
			orphan = max(orphan, o.Timeout)
		}
	}
	for _, o := range ops {
		if o.Kind != history.Lock || !o.Wait || o.HungUp || o.Return == 0 || o.Outcome == history.Refused {
			continue
		}
		from, to := o.Call, o.Return
		if o.Outcome == history.OK {
			to = o.Return
		}
		for moved := true; moved; { // what is held is no gap: find the latest time before `to` at which it was
			moved = false
			for _, h := range held {
				if h.from < to && h.to > from && !(o.Acquired() && h.from == o.Call) {
					from, moved = h.to, true
				}
			}
		}
		c.checked("idle")
		if to-from-c.stalled(from, to) > c.bounds.Idle.Nanoseconds() && !c.broken(from, to, breaksService, c.bounds.Recover) &&
			!c.broken(from-orphan, to, breaksOrphans, c.bounds.Recover) {
			c.violated("idle", []history.Op{o}, "client %d waited for lock %s at proxy %d although nobody had held it for %.3f s", o.Client, key, o.Proxy, float64(to-from)/1e9)
		}
	}
}

// stalled is for how long the machine stood still between two times: nobody can be let in then.
func (c *checker) stalled(from, to int64) (sum int64) {
	for _, f := range c.faults {
		if f.Breaks.Arrival {
			sum += max(0, min(f.To, to)-max(f.From, from))
		}
	}
	return sum
}

// latestEnd is when a lock that was acquired had ended at the latest, if the service works.
func (c *checker) latestEnd(o history.Op, ops []history.Op) int64 {
	end := o.Return + o.Timeout
	for _, other := range ops {
		if other.Token != o.Result || other.Client != o.Client {
			continue
		}
		switch {
		case other.Kind == history.Unlock && other.Outcome == history.OK, other.Kind == history.Lost && o.Session:
			return max(other.Return, other.Call)
		case other.Kind == history.Relock && other.Return != 0:
			end = max(end, other.Return+other.Timeout)
		case other.Kind == history.Relock:
			end = max(end, other.Call+2*other.Timeout)
		case o.Session && other.Return != 0:
			end = max(end, other.Return+o.Timeout) // renewed until then at least
		}
	}
	if o.Session {
		end += 10 * o.Timeout // renewed for as long as its connection was open, which is not known here
	}
	return end
}
