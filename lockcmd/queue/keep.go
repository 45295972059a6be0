package queue

import (
	"time"

	"lockproxy/lockcmd/script"
)

// Keep makes w the place of a client that does not wait itself, kept for a time from now.
func (w *Wait) Keep(d time.Duration, now time.Time) {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	w.keep, w.until = d, now.Add(d)
}

// Until is when w ends; zero is never.
func (w *Wait) Until() time.Time {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	return w.until
}

// Asks is what w asks for now. A place takes the lock for as long as it is kept.
func (w *Waiter) Asks() script.Request {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	r := w.Request
	if w.keep > 0 {
		r.Timeout = w.keep
	}
	return r
}

// Given is the token of the lock that w was given, which its owner did not have before; 0 for none.
func (w *Waiter) Given() int64 {
	w.queues.mu.Lock()
	defer w.queues.mu.Unlock()
	if w.state != granted || w.Renewed {
		return 0
	}
	return w.Token
}
