package queue

import (
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/names"
)

// Entry is a client that waits for a lock.
type Entry struct {
	Owner, Client string
	Name          string // of the connection
	Mode          string // "exclusive" or "shared"
	Since         time.Time
	Until         time.Time // zero is never
}

// Waiters returns up to limit of the clients that wait for a lock at this proxy, in order.
func (qs *Queues) Waiters(id names.Lock, limit int) (list []Entry) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	q := qs.of[id]
	if q == nil {
		return nil
	}
	for place := q.waiters.Front(); place != nil && len(list) < limit; place = place.Next() {
		w := place.Value.(*Waiter)
		list = append(list, Entry{w.Owner, w.Client, w.Name, w.Mode(), w.Joined, w.until})
	}
	return list
}

// Line is how many clients wait for a lock, and since when the first.
type Line struct {
	names.Lock
	Waiters int
	Oldest  time.Time
}

// Line is the line of a lock, with no Waiters if there is none.
func (qs *Queues) Line(id names.Lock) Line {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if q := qs.of[id]; q != nil {
		return q.line(id)
	}
	return Line{Lock: id}
}

func (q *waitQueue) line(id names.Lock) Line {
	l := Line{Lock: id, Waiters: q.len()}
	if first := q.first(); first != nil {
		l.Oldest = first.Joined
	}
	return l
}

// Lines are the lines of all locks.
func (qs *Queues) Lines() (list []Line) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	for id, q := range qs.of {
		list = append(list, q.line(id))
	}
	return list
}

// Waited is for how long clients have waited until now: the longest, and together. It looks at each
// queue, not at each client.
func (qs *Queues) Waited() (queues int, oldest, sum time.Duration) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	now := monotonic.Now()
	for _, q := range qs.of {
		if first := q.first(); first != nil {
			oldest = max(oldest, time.Duration(now-monotonic.Of(first.Joined)))
		}
		sum += time.Duration(int64(q.len())*now - q.joined)
	}
	return len(qs.of), oldest, sum
}
