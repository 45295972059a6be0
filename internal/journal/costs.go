package journal

import (
	"cmp"
	"slices"
	"time"

	"lockproxy/internal/names"
)

// Cost is what a lock has cost within a time.
type Cost struct {
	names.Lock
	Numbers
	Blame []Blame // the holders that others waited longest for first
}

// Costs returns what the locks that match have cost within a time before at, in whole minutes. The
// list is not sorted.
func (j *Journal) Costs(
	within time.Duration, at int64, match func(*names.Lock) bool,
) (list []Cost) {
	if j == nil {
		return nil
	}
	since := (at - int64(min(within, Window))) / minuteLength
	for i := range j.shards {
		s := &j.shards[i]
		s.mu.Lock()
		for _, h := range s.locks {
			if !match(&h.Lock) {
				continue
			}
			if h.countWaits(at); h.waiting > 0 {
				s.account(h)
			}
			if c := h.cost(since, at); c.Acquired+c.Refused+c.Waits > 0 || c.Wait+c.Hold > 0 {
				list = append(list, c)
			}
		}
		s.mu.Unlock()
	}
	return list
}

// cost is what the lock has cost since a minute.
func (h *history) cost(since, at int64) Cost {
	c := Cost{Lock: h.Lock}
	for i := range h.minutes {
		if m := &h.minutes[i]; m.number > since {
			c.Numbers.add(m.Numbers)
			c.Blame = mergeBlame(c.Blame, m.blame)
			if m.number == since+1 {
				c.Waits += m.carried
			}
		}
	}
	if h.held {
		hold := time.Duration(at - max(h.since, (since+1)*minuteLength))
		c.Hold += max(hold, 0)
		c.LongestHold = max(c.LongestHold, time.Duration(at-h.since))
	}
	sortBlame(c.Blame)
	return c
}

// Merge adds up the costs of each Lock, in the order in which the Locks first appear.
func Merge(list []Cost) (merged []Cost) {
	index := map[names.Lock]int{}
	var blame []map[string]time.Duration
	for _, c := range list {
		i, ok := index[c.Lock]
		if !ok {
			i = len(merged)
			index[c.Lock] = i
			merged = append(merged, Cost{Lock: c.Lock})
			blame = append(blame, map[string]time.Duration{})
		}
		merged[i].Numbers.add(c.Numbers)
		for _, b := range c.Blame {
			blame[i][b.Holder] += b.Wait
		}
	}
	for i := range merged {
		for holder, wait := range blame[i] {
			merged[i].Blame = append(merged[i].Blame, Blame{holder, wait})
		}
		sortBlame(merged[i].Blame)
	}
	return merged
}

func mergeBlame(list, more []Blame) []Blame {
	for _, b := range more {
		i := slices.IndexFunc(list, func(have Blame) bool { return have.Holder == b.Holder })
		if i < 0 {
			list = append(list, b)
		} else {
			list[i].Wait += b.Wait
		}
	}
	return list
}

func sortBlame(list []Blame) {
	slices.SortFunc(list, func(a, b Blame) int {
		return cmp.Or(cmp.Compare(b.Wait, a.Wait), cmp.Compare(a.Holder, b.Holder))
	})
}
