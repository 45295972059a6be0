package queue

import (
	"time"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// Entry is a client that waits for a lock.
type Entry struct {
	script.Request
	Since, Until time.Time // until zero is never
}

// Waiters returns up to limit of the clients that wait for the lock at this proxy, in order.
func (q Queue) Waiters(limit int) (list []Entry) {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	line := q.all.lineOf(q.id)
	if line == nil {
		return nil
	}
	for place := line.waiters.Front(); place != nil && len(list) < limit; place = place.Next() {
		w := place.Value.(*Waiter)
		list = append(list, Entry{w.Request, w.Joined, w.until})
	}
	return list
}

// Line is how many clients wait for a lock, and since when the first.
type Line struct {
	names.Lock
	Waiters int
	Oldest  time.Time
}

// Line is that of the lock, with no Waiters if there is none.
func (q Queue) Line() Line {
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	return q.all.known(q.id).shown(q.id)
}

// shown is the line of the lock.
func (e *entry) shown(id names.Lock) Line {
	l := Line{Lock: id}
	if e.line != nil && e.line.len() > 0 {
		l.Waiters, l.Oldest = e.line.len(), e.line.first().Joined
	}
	return l
}

// Lines are the lines of all locks.
func (qs *Queues) Lines() (list []Line) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for id, e := range qs.of {
		if e.line != nil {
			list = append(list, e.shown(id))
		}
	}
	return list
}

// Totals are those of all who wait, and for how long they have waited until now.
type Totals struct {
	Waiters, Queues int
	Oldest, Sum     time.Duration
}

// Totals looks only at the waiter that has waited longest.
func (qs *Queues) Totals(now time.Time) Totals {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	t := Totals{Waiters: qs.waits.Len(), Queues: qs.lines}
	if first := qs.waits.Front(); first != nil { // it can have joined since now
		t.Oldest = max(now.Sub(first.Value.(*Wait).Joined), 0)
		t.Sum = max(time.Duration(t.Waiters)*now.Sub(qs.began)-qs.joined, 0)
	}
	return t
}
