//go:build linux

package check

import (
	"regexp"
	"strings"

	"lockproxy/internal/test/faults/history"
)

func (s span) has(t int64) bool { return s.from <= t && t <= s.to }

var quoted = regexp.MustCompile(`"([^"]*)"`)

// deadlocks checks each DEADLOCK: at some time while it was asked for, each owner that it names can
// have waited for the named lock while the next can have had that. And it finds pairs of owners that
// have waited for each other for long.
func (c *checker) deadlocks() {
	var waits []history.Op
	for _, o := range c.ops {
		if o.Kind == history.Lock && o.Wait && o.Owner != "" {
			waits = append(waits, o)
		}
	}
	for _, o := range waits {
		if o.Outcome == history.Refused && strings.HasPrefix(o.Got, "DEADLOCK ") {
			c.checked("deadlock")
			if !c.cycleWas(o, waits) {
				c.violated("deadlock", []history.Op{o}, "there was no such cycle: %s", o.Got)
			}
		}
	}
	c.missed(waits)
}

// waitsUntil is when a wait ended at the latest.
func waitsUntil(o history.Op) int64 {
	if o.Outcome == history.Unknown && o.Return == 0 {
		return forever
	}
	return o.Return
}

// cycleWas reports whether the cycle that a DEADLOCK names can have been.
func (c *checker) cycleWas(o history.Op, waits []history.Op) bool {
	text, _, _ := strings.Cut(o.Got, ": the lock was")
	names := quoted.FindAllStringSubmatch(text, -1)
	if len(names) < 5 || len(names)%2 == 0 || names[0][1] != names[len(names)-1][1] ||
		names[0][1] != o.Owner || names[1][1] != o.Key {
		return false
	}
	at := []int64{o.Call}
	var waiting, having [][]span
	for i := 0; i+2 < len(names); i += 2 {
		owner, key, next := names[i][1], names[i+1][1], names[i+2][1]
		var w []span
		for _, other := range waits {
			if other.Owner == owner && other.Key == key {
				w = append(w, span{other.Call, waitsUntil(other)})
				at = append(at, other.Call)
			}
		}
		h := c.canHave(key, next)
		for _, s := range h {
			at = append(at, s.from)
		}
		waiting, having = append(waiting, w), append(having, h)
	}
	asked := span{o.Call, o.Return}
	for _, t := range at {
		if asked.has(t) && allHave(waiting, t) && allHave(having, t) {
			return true
		}
	}
	return false
}

func allHave(lists [][]span, t int64) bool {
	for _, list := range lists {
		is := false
		for _, s := range list {
			is = is || s.has(t)
		}
		if !is {
			return false
		}
	}
	return true
}

// canHave is when an owner can have had a lock.
func (c *checker) canHave(key, owner string) (list []span) {
	for _, o := range c.locks[key] {
		if o.Kind != history.Lock || o.Owner != owner ||
			!o.Acquired() && o.Outcome != history.Unknown {
			continue
		}
		s := span{o.Call, forever} // it may have been renewed, or its timeout begin late
		for _, u := range c.locks[key] {
			released := u.Kind == history.Unlock && u.Outcome == history.OK && u.Result == 1
			if released && o.Acquired() && u.Token == o.Result &&
				!c.broken(u.Call, forever, breaksWrites) { // which undoes it
				s.to = min(s.to, u.Return)
			}
		}
		list = append(list, s)
	}
	return list
}
