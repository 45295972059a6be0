package queue

import (
	"lockproxy/internal/names"
	"lockproxy/lockcmd/script"
)

// Watch begins to wait until the lock has another holder. The Wait is in no line, and keeps nobody
// from the lock. EndWatch must follow. wake is as for WakeBy.
func (q Queue) Watch(connection string, wake func()) *Wait {
	qs, r := q.all, script.Request{Key: q.id.Key, Connection: connection}
	w := newWait(names.Identity{DB: q.id.DB}, r)
	w.queues = qs
	w.WakeBy(wake)
	qs.waiters.Add(1)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.waitedKeys.Add(q.id.Key, 1)
	qs.asking[connection] = w
	if qs.watching[q.id] == nil {
		qs.watching[q.id] = map[*Wait]struct{}{}
	}
	qs.watching[q.id][w] = struct{}{}
	return w
}

// EndWatch ends it. refused is why, if others have ended it already.
func (w *Wait) EndWatch() (refused error) {
	qs, id := w.queues, w.Lead.ID()
	defer qs.waiters.Add(-1)
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.waitedKeys.Add(id.Key, -1)
	delete(qs.asking, w.Lead.Connection)
	if delete(qs.watching[id], w); len(qs.watching[id]) == 0 {
		delete(qs.watching, id)
	}
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
	return q.all.of[q.id] != nil || q.all.watching[q.id] != nil
}

// Changed wakes those that watch the lock: it may have another holder.
func (q Queue) Changed() {
	if q.all.Waiting() {
		q.all.mu.Lock()
		defer q.all.mu.Unlock()
		q.all.changedLocked(q.id)
	}
}

// changedLocked is Changed. mu is held.
func (qs *Queues) changedLocked(id names.Lock) {
	for w := range qs.watching[id] {
		w.Signal()
	}
}
