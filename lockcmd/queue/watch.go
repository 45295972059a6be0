package queue

import (
	"sync/atomic"

	"lockproxy/internal/names"
	"lockproxy/lockcmd/failure"
)

// Watch is a client that waits until a lock has another holder. It is in no line, and keeps nobody
// from the lock.
type Watch struct {
	queues     *Queues
	id         names.Lock
	connection string
	wake       func()
	woken      atomic.Bool // the lock may have another holder, since TakeWoken
	refused    error       // guarded by Queues.mu; why it has ended
}

// Watch begins to watch a lock for a connection. End must follow. wake is as for Wait.WakeBy.
func (q Queue) Watch(connection string, wake func()) *Watch {
	qs := q.all
	w := &Watch{queues: qs, id: q.id, connection: connection, wake: wake}
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.watches.Add(1)
	qs.waitedKeys.Add(q.id.Key, 1)
	if qs.watching[q.id] == nil {
		qs.watching[q.id] = map[string]*Watch{}
	}
	qs.watching[q.id][connection] = w
	qs.watchers[connection] = w
	return w
}

// End ends the watch.
func (w *Watch) End() {
	qs := w.queues
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.watches.Add(-1)
	qs.waitedKeys.Add(w.id.Key, -1)
	delete(qs.watchers, w.connection)
	if delete(qs.watching[w.id], w.connection); len(qs.watching[w.id]) == 0 {
		delete(qs.watching, w.id)
	}
}

// Woken reports whether the lock may have another holder since the last TakeWoken.
func (w *Watch) Woken() bool { return w.woken.Load() }

// TakeWoken is called before somebody asks for the holder.
func (w *Watch) TakeWoken() { w.woken.Store(false) }

// Refused is why the watch has ended, if others have ended it.
func (w *Watch) Refused() error {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.refused
}

func (w *Watch) signal() {
	if !w.woken.Swap(true) {
		w.wake()
	}
}

// Watched reports whether clients watch the lock.
func (q Queue) Watched() bool {
	if q.all.watches.Load() == 0 {
		return false
	}
	q.all.mu.Lock()
	defer q.all.mu.Unlock()
	return q.all.watching[q.id] != nil
}

// Changed wakes those that watch the lock: it may have another holder.
func (q Queue) Changed() {
	if q.all.watches.Load() > 0 {
		q.all.mu.Lock()
		defer q.all.mu.Unlock()
		q.all.changedLocked(q.id)
	}
}

// changedLocked is Changed. mu is held.
func (qs *Queues) changedLocked(id names.Lock) {
	for _, w := range qs.watching[id] {
		w.signal()
	}
}

// unblockWatch ends a client's watch. It reports whether there was one. mu is held.
func (qs *Queues) unblockWatch(connection string, withError bool) bool {
	w := qs.watchers[connection]
	if w == nil || w.refused != nil {
		return false
	}
	w.refused = failure.UnblockedError(withError)
	w.signal()
	return true
}
