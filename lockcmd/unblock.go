package lockcmd

import "errors"

// unblockedError ends a wait as CLIENT UNBLOCK does: with Redis's error if it is true, otherwise
// with null, as if the wait's time were over.
type unblockedError bool

func (unblockedError) Error() string { return "UNBLOCKED client unblocked via CLIENT UNBLOCK" }

// IsUnblocked reports whether a wait was ended by Unblock.
func IsUnblocked(err error) bool {
	var unblocked unblockedError
	return errors.As(err, &unblocked)
}

// Waits reports whether a client waits for a lock.
func (qs *queues) Waits(h *Holder) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	return h.waiting != nil
}

// Unblock ends the wait of a client's LOCK or LOCKALL. It reports whether the client still waited.
// If the lock is on its way, it is released.
func (qs *queues) Unblock(h *Holder, withError bool) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	w := h.waiting
	if w == nil || w.rejected != nil || w.state != waiting && w.state != offered {
		return false
	}
	w.state, w.rejected = left, unblockedError(withError)
	w.signal()
	return true
}

// waitFailed is the reply to a wait that ended with an error.
func waitFailed(err error) Reply {
	if unblocked, ok := err.(unblockedError); ok && !bool(unblocked) {
		return nullReply
	}
	return errorReply(err)
}
