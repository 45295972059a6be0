package proxy

import (
	"errors"
	"net"
	"syscall"
	"time"

	"lockproxy/lockcmd/failure"
)

// commandContext is the context of a session's lock command, for the session's goroutine alone. It
// ends when chain.Step.Wait should return. To watch the client costs a goroutine, which few
// commands need: the first call of Done starts it, and end ends it. Err checks the client without
// one.
type commandContext struct {
	*common
	in    *input
	watch *clientWatch // nil while the client is not watched
}

// Done is closed soon after the client has closed, or the server has begun to shut down.
func (c *commandContext) Done() <-chan struct{} {
	if c.watch == nil {
		c.begin(watchWaiterAfter)
	}
	return c.watch.gone
}

// begin begins to watch the client after a time, until end.
func (c *commandContext) begin(after time.Duration) {
	if c.client.setPhase(locking); c.client.drains() {
		c.client.interruptRead() // the command ends at once
	}
	c.client.guard.Start()
	c.watch = c.in.startWatch(after)
}

// Err is why the command is useless by now, as far as is known: ErrGone or ErrLost.
func (c *commandContext) Err() error {
	switch {
	case c.gone():
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
func (c *commandContext) gone() bool {
	if c.in.readErr != nil {
		return true
	}
	if c.watch != nil {
		select {
		case <-c.watch.gone:
			return true
		default:
		}
	}
	n, err := c.in.peek()
	return n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, net.ErrClosed)
}

// end ends the watch of a lock command. It comes after the answer, which must not wait for it.
func (c *commandContext) end() {
	if c.watch == nil {
		return
	}
	c.client.setPhase(serving)
	c.watch.end()
	c.watch = nil
	c.pipe.Flush(nil) // forgets a route that failed during the wait
}
