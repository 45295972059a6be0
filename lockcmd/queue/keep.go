package queue

import (
	"time"

	"lockproxy/lockcmd/script"
)

// Keep makes w the place of a client that does not wait itself, which is kept until a time.
func (w *Wait) Keep(until time.Time) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.isPlace, w.until = true, until
}

// Until is when w ends; zero is never.
func (w *Wait) Until() time.Time {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.until
}

// placeMargin is how much longer than the place its lock lasts: its end is a release, which gives
// the lock to the next waiter.
const placeMargin = 250 * time.Millisecond

// Asks is what w asks for now. A place takes the lock for as long as it is kept.
func (w *Waiter) Asks() script.Request {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	r := w.Request
	if w.isPlace {
		r.Timeout = max(time.Until(w.until), 0) + placeMargin
	}
	return r
}
