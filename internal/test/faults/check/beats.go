//go:build linux

package check

import (
	"slices"
	"time"

	"lockproxy/internal/test/faults/history"
)

// beats measures how much the machine, Redis and a proxy get done: the pings of one client to that
// proxy, one after the other, with a pause behind each. What a bound of time means is counted in
// them, so that a machine that is slow, or stops, makes nothing late.
type beats struct {
	ops   []history.Op // by Call; of those that were answered
	whole []int64      // by index: the time that the earlier ones stand for, ns
}

func beatsOf(ops []history.Op) map[int]*beats {
	of := map[int]*beats{}
	for _, o := range ops {
		if o.Kind != history.Beat || o.Outcome != history.OK {
			continue
		}
		b := of[o.Proxy]
		if b == nil {
			b = &beats{whole: []int64{0}}
			of[o.Proxy] = b
		}
		b.ops = append(b.ops, o)
		b.whole = append(b.whole, b.whole[len(b.whole)-1]+o.Timeout)
	}
	return of
}

// between are the indices of the beats that lie wholly between two times.
func (b *beats) between(from, to int64) (first, end int) {
	first, _ = slices.BinarySearchFunc(b.ops, from, func(o history.Op, t int64) int {
		return int(o.Call - t)
	})
	end, _ = slices.BinarySearchFunc(b.ops, to+1, func(o history.Op, t int64) int {
		return int(o.Return - t)
	})
	return first, max(first, end)
}

// worked is for how long the service worked between two times, as far as the beats of a proxy tell.
// Each counts for as long as it takes where nothing is slow.
func (c *checker) worked(from, to int64, proxy int) int64 {
	b := c.beats[proxy]
	if b == nil {
		return to - from
	}
	first, end := b.between(from, to)
	return min(to-from, b.whole[end]-b.whole[first])
}

// after is when the service has worked for d since a time, at each proxy; forever if that is not
// known.
func (c *checker) after(at int64, d time.Duration) int64 {
	latest := at + d.Nanoseconds()
	if d == 0 {
		return latest
	}
	for _, b := range c.beats {
		first, _ := b.between(at, at)
		i, _ := slices.BinarySearch(b.whole[first:], b.whole[first]+d.Nanoseconds())
		if first+i > len(b.ops) {
			return forever
		}
		if i > 0 {
			latest = max(latest, b.ops[first+i-1].Return)
		}
	}
	return latest
}
