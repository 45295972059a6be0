//go:build linux

package check

import (
	"slices"
	"time"

	"lockproxy/internal/test/faults/history"
)

// place is a LOCK … PLACE that was not given the lock. Its span is the time in which the lock can
// have been kept for its client.
type place struct {
	hold
	came int64 // when its client began to ask
	only bool  // it was certainly in the line only, and had no lock
}

// placeMargin is how long the lock of a place outlasts it if its proxy cannot release it.
const placeMargin = 250 * time.Millisecond

// placesOf are those in the line of a lock. A client that asks in time, and is answered null again,
// had no lock between its two questions: it would have been given it.
func (c *checker) placesOf(key string) (list []place) {
	if list, known := c.places[key]; known {
		return list
	}
	defer func() { c.places[key] = list }()
	ops := c.locks[key]
	for i, o := range ops {
		if o.Place == 0 || o.Acquired() {
			continue
		}
		p := place{hold: hold{span: span{from: o.Call}, op: o}, came: came(ops, i)}
		kept := o.Place + placeMargin.Nanoseconds()
		switch next := again(ops, i); {
		case o.HungUp:
			p.to = c.noticed(o, o.Left) + kept + o.Timeout
		case o.Return == 0:
			p.to = later(c.after(o.Call, 5*c.bounds.Idle), kept+o.Timeout)
		case next.Outcome == history.OK, next.Outcome == history.Null:
			p.to = min(o.Return+kept, next.Return)
			p.only = o.Outcome == history.Null && next.Outcome == history.Null && keeps(o, next) &&
				!c.broken(o.Call, next.Return, breaksLeases)
		default:
			p.to = o.Return + kept
		}
		list = append(list, p)
	}
	return list
}

// keeps reports whether a client asked again before its place was over, if nothing else ended it.
func keeps(o, next history.Op) bool {
	return next.Outcome != history.Unknown && next.Return < o.Call+o.Place
}

// again is the next question of a client that has asked for a place; zero if it asked no more.
func again(ops []history.Op, i int) history.Op {
	for _, next := range ops[i+1:] {
		if next.Client == ops[i].Client && next.Kind == history.Lock {
			if next.Place > 0 && next.Again {
				return next
			}
			break
		}
	}
	return history.Op{}
}

// came is since when at the earliest an operation's client has been in the line.
func came(ops []history.Op, i int) int64 {
	for o := ops[i]; o.Again && i >= 0; i-- {
		if e := ops[i]; e.Client == o.Client && e.Kind == history.Lock && !e.Again {
			return e.Call
		}
	}
	return ops[max(i, 0)].Call
}

// standing calls f with each question of a client that has certainly kept its place since an
// earlier one was answered, and with the time of that answer. A fault can end a place.
func (c *checker) standing(key string, f func(o history.Op, since int64)) {
	ops, since := c.locks[key], map[history.Op]int64{}
	for i, o := range ops {
		if o.Place == 0 || o.Outcome != history.Null {
			continue
		}
		if since[o] == 0 {
			since[o] = o.Return
		}
		next := again(ops, i)
		if !keeps(o, next) || c.recovering(o.Call, next.Return, breaksService) ||
			c.messageLate(o, o, o.Call, next.Return) {
			continue
		}
		since[next] = since[o]
		f(next, since[o])
	}
}

// placesServed are the waits of clients that were given the lock from their places.
func (c *checker) placesServed(key string) (waits []history.Op) {
	ops := c.locks[key]
	sent := map[history.Op]int64{}
	c.standing(key, func(o history.Op, since int64) { sent[o] = since })
	for i, o := range ops {
		if o.Place > 0 && o.Again && o.Acquired() {
			since, certain := sent[o]
			if !certain { // it may have come when it asked last
				since = o.Call
			}
			o.Call, o.Sent, o.Wait = came(ops, i), since, true
			waits = append(waits, o)
		}
	}
	return waits
}

// placesUnserved are the waits of clients until they asked once more, and were not given the lock.
func (c *checker) placesUnserved(key string) (waits []history.Op) {
	c.standing(key, func(o history.Op, since int64) {
		if o.Outcome == history.Null {
			o.Call, o.Return, o.Wait = since, o.Call, true
			waits = append(waits, o)
		}
	})
	return waits
}

func sortByCall(ops []history.Op) {
	slices.SortStableFunc(ops, func(a, b history.Op) int { return int(a.Call - b.Call) })
}
