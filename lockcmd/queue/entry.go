package queue

import (
	"container/list"

	"lockproxy/internal/names"
)

// entry is what is known here of one lock. Queues.mu guards it.
type entry struct {
	id       names.Lock
	hash     names.Hash         // of id
	line     *waitQueue         // nil unless clients wait; empty until the last of them has ended
	watching map[*Wait]struct{} // see Queue.Watch
	delayed  []*Wait            // see Queue.Delay; in order
	foreign  foreignSight
	leftAs   *names.Identity // of the last waiter, if the lock may be reserved for it
	leftAt   *list.Element   // in Queues.left; nil while anybody here uses the lock
}

// changed wakes those that watch the lock: it may have another holder.
func (e *entry) changed() {
	for w := range e.watching {
		w.Signal()
	}
}

// pollNow makes the first waiter poll: the lock may be free.
func (e *entry) pollNow() {
	if e.line != nil {
		e.line.pollNow()
	}
}

// wakeDelayed makes the first of the delayed SETs ask again: the lock may be free.
func (e *entry) wakeDelayed() {
	if len(e.delayed) > 0 {
		e.delayed[0].Signal()
	}
}
