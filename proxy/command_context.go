package proxy

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"

	"lockproxy/lockcmd"
)

// commandContext is the context of a session's lock command, for the session's goroutine alone. It
// ends as lockcmd.Session says. To watch the client costs a goroutine, which few commands need: the
// first call of Done begins it, and endWatch ends it. Err looks by itself.
type commandContext session

// command is the context of the lock command that is running.
func (s *session) command() context.Context { return (*commandContext)(s) }

// Done is closed soon after the client has closed, or the server has begun to shut down.
func (c *commandContext) Done() <-chan struct{} {
	s := (*session)(c)
	if s.watch == nil {
		if s.setPhase(locking); s.drains() {
			s.nc.SetReadDeadline(time.Unix(1, 0)) // it is told at once
		}
		s.guard.Start()
		s.watch = s.startWatch(watchWaiterAfter)
	}
	return s.watch.gone
}

// Err is why the command is of no use any more, as is known at this moment: ErrGone or ErrLost.
func (c *commandContext) Err() error {
	s := (*session)(c)
	switch {
	case s.gone():
		return lockcmd.ErrGone
	case s.pipe.Status().Lost:
		return lockcmd.ErrLost
	}
	return nil
}

func (c *commandContext) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }
func (c *commandContext) Value(any) any                           { return nil }

// gone reports whether the client is known to have closed: whether the kernel has its FIN or reset,
// and nothing sent before it is left to read. It takes nothing from the connection.
func (s *session) gone() bool {
	if s.readErr != nil {
		return true
	}
	if s.watch != nil {
		select {
		case <-s.watch.gone:
			return true
		default:
		}
	}
	n, err := s.peek()
	return n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed)
}
