//go:build linux

package check

import "lockproxy/internal/test/faults/history"

// hold is when a lock was, or can have been, held for an operation.
type hold struct {
	span
	op   history.Op
	left bool // for a client that left without reading the reply
}

// holdsOf are those of a lock. A LOCKALL that waits for another lock, which somebody has, counts,
// since those that came later wait for it.
func (c *checker) holdsOf(key string) (list []hold) {
	if list, known := c.holds[key]; known {
		return list
	}
	defer func() { c.holds[key] = list }()
	for _, o := range c.locks[key] {
		if o.Kind != history.Lock || o.With == "" || !o.Wait || o.Return == 0 || o.Acquired() {
			continue
		}
		for _, h := range c.takenOf(o.With) {
			if both := (span{max(o.Call, h.from), min(o.Return, h.to)}); both.from < both.to {
				list = append(list, hold{span: both, op: o})
			}
		}
	}
	return append(list, c.takenOf(key)...)
}

// takenOf are holds of a lock without the LOCKALLs that wait.
func (c *checker) takenOf(key string) (list []hold) {
	if list, known := c.taken[key]; known {
		return list
	}
	defer func() { c.taken[key] = list }()
	named := map[int64][]history.Op{} // by the token that they name
	for _, o := range c.locks[key] {
		named[o.Token] = append(named[o.Token], o)
	}
	for _, o := range c.locks[key] {
		until, gone := c.vanished(o)
		left := c.noticed(o, o.Left) // when its proxy knows that it hung up
		h := hold{span: span{from: o.Call}, op: o}
		switch {
		case o.Kind != history.Lock && o.Kind != history.Probe, o.Place > 0 && !o.Acquired():
		case o.Acquired():
			h.to = c.latestEnd(o, named[o.Result])
		case o.HungUp:
			h.to, h.left = left+o.Timeout, left == o.Left
		case o.Outcome == history.Unknown && gone:
			h.to = later(c.after(until, c.bounds.Leave), o.Timeout)
		case o.Outcome == history.Unknown:
			// a reply can have been on its way to a client that gave up
			h.to = later(c.after(o.Call, 5*c.bounds.Idle), o.Timeout)
		}
		if h.to > 0 {
			list = append(list, h)
		}
	}
	for _, p := range c.placesOf(key) {
		if !p.only {
			list = append(list, p.hold)
		}
	}
	return list
}

// heldIn are the times of some holds. left are those, and those of clients that left.
func heldIn(holds []hold) (held, left []span) {
	for _, h := range holds {
		if left = append(left, h.span); !h.left {
			held = append(held, h.span)
		}
	}
	return held, left
}
