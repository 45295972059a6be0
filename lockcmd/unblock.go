package lockcmd

import (
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/held"
)

// Waits reports whether a client waits for a lock.
func (qs *queues) Waits(h *held.Holder) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return qs.asking[h.Connection] != nil
}

// Unblock ends the wait of a client's LOCK or LOCKALL. It reports whether the client still waited.
// If the lock is on its way, it is released.
func (qs *queues) Unblock(h *held.Holder, withError bool) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w := qs.asking[h.Connection]
	if w == nil || w.rejected != nil || w.state != waiting && w.state != offered {
		return false
	}
	w.state, w.rejected = left, failure.UnblockedError(withError)
	w.signal()
	return true
}
