package queue

import "time"

// Anybody who may use the channel of this proxy can tell it that a lock is free or reserved for it.
// That is a claim, and the first waiter's poll shows whether it is true. Claims cost no more than
// that poll, and the more of them were wrong, the less often they are looked at.

// claims are those about one lock. Queues.mu guards them.
type claims struct {
	pending bool      // one has come: it is looked at from due on
	polled  bool      // the next poll looks at one
	wrong   int       // how many the last polls have looked at for nothing
	due     time.Time // before it none is looked at
}

// Claims that follow a wrong one are looked at after firstDoubt, and after twice as long for each
// further one, up to maxDoubt.
const (
	firstDoubt = 2 * time.Millisecond
	maxDoubt   = 64 * time.Millisecond
)

// come notes a claim. It reports whether the first waiter must poll at once.
func (c *claims) come(now time.Time) (poll bool) {
	if now.Before(c.due) {
		c.pending = true
		return false
	}
	c.polled = true
	return true
}

// look notes that the first waiter polls now. The claim was wrong, unless a grant follows.
func (c *claims) look(now time.Time) {
	if c.pending && !now.Before(c.due) {
		c.pending, c.polled = false, true
	}
	if c.polled {
		c.polled = false
		c.due = now.Add(min(firstDoubt<<min(c.wrong, 8), maxDoubt))
		c.wrong++
	}
}
