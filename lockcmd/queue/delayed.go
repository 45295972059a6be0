package queue

import (
	"slices"
	"time"
)

// Delayed is a SET with a delayed answer, of a client that does not know LOCK. Only its session
// uses it.
type Delayed struct{ *Wait }

// Delay puts a SET into a line of its own, in the order in which clients began to ask. Leave must
// follow. wake is called when it must ask again, and must not block.
func (q Queue) Delay(since time.Time, wake func()) Delayed {
	qs, w := q.all, q.outside("", wake)
	w.Joined = since
	qs.mu.Lock()
	defer qs.mu.Unlock()
	e := qs.entryLocked(q.id)
	place := len(e.delayed)
	for place > 0 && e.delayed[place-1].Joined.After(since) {
		place--
	}
	e.delayed = slices.Insert(e.delayed, place, w)
	qs.usedLocked(e)
	return Delayed{w}
}

// Leave ends the delay. Unless the SET has taken the lock, the next in line asks again.
func (d Delayed) Leave(took bool) {
	d.queues.mu.Lock()
	defer d.queues.mu.Unlock()
	e := d.queues.known(d.Lead.ID())
	place := slices.Index(e.delayed, d.Wait)
	e.delayed = slices.Delete(e.delayed, place, place+1)
	d.queues.usedLocked(e)
	if place == 0 && !took {
		e.wakeDelayed()
	}
}

// First reports whether the SET is first in line.
func (d Delayed) First() bool {
	d.queues.mu.Lock()
	defer d.queues.mu.Unlock()
	return d.queues.known(d.Lead.ID()).delayed[0] == d.Wait
}
