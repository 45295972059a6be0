package queue

import (
	"slices"
	"time"

	"lockproxy/internal/names"
)

// Delayed is a SET with a delayed answer, of a client that does not know LOCK. Only its session
// uses it.
type Delayed struct {
	queues *Queues
	id     names.Lock
	since  time.Time     // when its client began to ask; this orders the line
	wake   chan struct{} // holds one: ask again
}

// delayedSets are the lines of delayed SETs. No line is empty. Callers hold Queues.mu.
type delayedSets map[names.Lock][]*Delayed

// wake makes the first in a lock's line ask again: the lock may be free.
func (lines delayedSets) wake(id names.Lock) {
	if line := lines[id]; line != nil {
		line[0].signal()
	}
}

// How often the first in line asks without a sign of a release.
const (
	minDelayedPoll = 100 * time.Millisecond
	maxDelayedPoll = 125 * time.Millisecond
)

// Delay puts a SET into the line of the lock, in the order in which clients began to ask. Leave
// must follow.
func (q Queue) Delay(since time.Time) *Delayed {
	qs := q.all
	d := &Delayed{queues: qs, id: q.id, since: since, wake: make(chan struct{}, 1)}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	line := qs.delayed[d.id]
	place := len(line)
	for place > 0 && line[place-1].since.After(since) {
		place--
	}
	qs.delayed[d.id] = slices.Insert(line, place, d)
	return d
}

// Leave ends the delay. Unless the SET has taken the lock, the next in line asks again.
func (d *Delayed) Leave(took bool) {
	qs := d.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	line := qs.delayed[d.id]
	place := slices.Index(line, d)
	line = slices.Delete(line, place, place+1)
	if len(line) == 0 {
		delete(qs.delayed, d.id)
		return
	}
	qs.delayed[d.id] = line
	if place == 0 && !took {
		line[0].signal()
	}
}

// First reports whether the SET is first in line.
func (d *Delayed) First() bool {
	qs := d.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.delayed[d.id][0] == d
}

// Woken is ready when the first in line must ask again.
func (d *Delayed) Woken() <-chan struct{} { return d.wake }

func (d *Delayed) signal() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// Pause is how long the first in line waits before it asks again without a sign.
func (d *Delayed) Pause() time.Duration { return jitter(minDelayedPoll, maxDelayedPoll) }

// WakeDelayed makes the first in the line of delayed SETs ask again: the lock may be free.
func (q Queue) WakeDelayed() {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	q.all.delayed.wake(q.id)
}
