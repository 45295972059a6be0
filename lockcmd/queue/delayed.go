package queue

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/names"
)

// Delayed is a SET with a delayed answer, of a client that does not know LOCK. Only its session
// uses it.
type Delayed struct {
	among *delayedSets
	id    names.Lock
	since time.Time // when its client began to ask; this orders the line
	wake  func()
	woken atomic.Bool // ask again
}

// delayedSets are the lines of delayed SETs.
type delayedSets struct {
	mu sync.Mutex
	of map[names.Lock][]*Delayed // guarded by mu; no line is empty
}

// How often the first in line asks without a sign of a release.
const (
	minDelayedPoll = 100 * time.Millisecond
	maxDelayedPoll = 125 * time.Millisecond
)

// join is Queue.Delay.
func (lines *delayedSets) join(id names.Lock, since time.Time, wake func()) *Delayed {
	d := &Delayed{among: lines, id: id, since: since, wake: wake}
	lines.mu.Lock()
	defer lines.mu.Unlock()
	if lines.of == nil {
		lines.of = map[names.Lock][]*Delayed{}
	}
	line := lines.of[id]
	place := len(line)
	for place > 0 && line[place-1].since.After(since) {
		place--
	}
	lines.of[id] = slices.Insert(line, place, d)
	return d
}

// wake makes the first in a lock's line ask again: the lock may be free.
func (lines *delayedSets) wake(id names.Lock) {
	lines.mu.Lock()
	defer lines.mu.Unlock()
	if line := lines.of[id]; line != nil {
		line[0].signal()
	}
}

// Leave ends the delay. Unless the SET has taken the lock, the next in line asks again.
func (d *Delayed) Leave(took bool) {
	lines := d.among
	lines.mu.Lock()
	defer lines.mu.Unlock()
	line := lines.of[d.id]
	place := slices.Index(line, d)
	line = slices.Delete(line, place, place+1)
	if len(line) == 0 {
		delete(lines.of, d.id)
		return
	}
	lines.of[d.id] = line
	if place == 0 && !took {
		line[0].signal()
	}
}

// First reports whether the SET is first in line.
func (d *Delayed) First() bool {
	d.among.mu.Lock()
	defer d.among.mu.Unlock()
	return d.among.of[d.id][0] == d
}

// TakeWoken reports whether the first in line must ask again.
func (d *Delayed) TakeWoken() bool { return d.woken.Swap(false) }

func (d *Delayed) signal() {
	if !d.woken.Swap(true) {
		d.wake()
	}
}

// Pause is how long the first in line waits before it asks again without a sign.
func (d *Delayed) Pause() time.Duration { return jitter(minDelayedPoll, maxDelayedPoll) }
