package queue

import (
	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// outside returns a Wait that is in no line, and keeps nobody from the lock. wake is as for WakeBy.
func (q Queue) outside(connection string, wake func()) *Wait {
	r := script.Request{Key: q.id.Key, Connection: connection}
	w := newWait(names.Identity{DB: q.id.DB}, r)
	w.queues = q.all
	w.WakeBy(wake)
	return w
}

// Watch begins to wait until the lock has another holder. EndWatch must follow.
func (q Queue) Watch(connection string, wake func()) *Wait {
	qs, w := q.all, q.outside(connection, wake)
	qs.waiters.Add(1)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.asking[connection] = w
	e := qs.entryLocked(q.id)
	if e.watching == nil {
		e.watching = map[*Wait]struct{}{}
	}
	e.watching[w] = struct{}{}
	qs.usedLocked(e)
	return w
}

// EndWatch ends it. refused is why, if others have ended it already.
func (w *Wait) EndWatch() (refused error) {
	qs := w.queues
	defer qs.waiters.Add(-1)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	delete(qs.asking, w.Lead.Connection)
	e := qs.known(w.Lead.ID())
	delete(e.watching, w)
	qs.usedLocked(e)
	w.end(left)
	return w.rejected
}

// Concerns reports whether clients wait for the lock, or watch it.
func (q Queue) Concerns() bool {
	if !q.all.Waiting() {
		return false
	}
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	e := q.all.known(q.id)
	return e.line != nil || len(e.watching) > 0
}

// Changed wakes those that watch the lock: it may have another holder.
func (q Queue) Changed() {
	if q.all.Waiting() {
		q.all.mu.Lock()
		defer q.all.mu.Unlock()
		q.all.known(q.id).changed()
	}
}
