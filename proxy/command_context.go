package proxy

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"lockproxy/lockcmd/failure"
)

// commandContext is the context of a session's lock command, for the session's goroutine alone. It
// ends when chain.Step.Wait should return. To watch the client costs a goroutine, which few
// commands need: the first call of Done starts it, and endWatch ends it. Err checks the client
// without one.
type commandContext exchange

// command is the context of the lock command that is running.
func (x *exchange) command() context.Context { return (*commandContext)(x) }

// Done is closed soon after the client has closed, or the server has begun to shut down.
func (c *commandContext) Done() <-chan struct{} {
	if c.watch == nil {
		(*exchange)(c).beginWatch(watchWaiterAfter)
	}
	return c.watch.gone
}

// beginWatch begins to watch the client after a time, until endWatch.
func (x *exchange) beginWatch(after time.Duration) {
	if x.client.setPhase(locking); x.client.drains() {
		x.client.interruptRead() // the command ends at once
	}
	x.client.guard.Start()
	x.watch = x.startWatch(after)
}

// Err is why the command is useless by now, as far as is known: ErrGone or ErrLost.
func (c *commandContext) Err() error {
	switch {
	case (*exchange)(c).gone():
		return failure.ErrGone
	case c.pipe.Status().Lost:
		return failure.ErrLost
	}
	return nil
}

// Deadline implements context.Context.
func (c *commandContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Value implements context.Context.
func (c *commandContext) Value(any) any { return nil }

// gone reports whether the client is known to have closed: whether the kernel has its FIN or reset,
// and nothing sent before it is left to read. It reads nothing.
func (x *exchange) gone() bool {
	if x.readErr != nil {
		return true
	}
	if x.watch != nil {
		select {
		case <-x.watch.gone:
			return true
		default:
		}
	}
	n, err := x.peek()
	return n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, net.ErrClosed)
}

// endWatch ends the watch of a lock command. It comes after the answer, which must not wait for it.
func (x *exchange) endWatch() {
	if x.watch == nil {
		return
	}
	x.client.setPhase(serving)
	x.watch.end()
	x.watch = nil
	x.pipe.Flush(nil) // forgets a route that failed during the wait
}
