package proxy

import (
	"crypto/tls"
	"syscall"
	"time"
)

// How a session ends while its server shuts down: between two commands, with all that was asked
// answered. A client that sends a command when it has the answer to the last finds its connection
// closed before it sends: the last answer and the end of the connection come in one packet, see
// cork. What comes after that is not run.

const (
	// maxIdleDrain is how long a client that sends nothing keeps its connection while the server
	// shuts down. One that sends something is sent away with its answer, which is the better
	// moment.
	maxIdleDrain = time.Second
	// farewell is how long a client may take to close its side: to close before would make the
	// kernel throw away answers on their way.
	lingerTimeout = 250 * time.Millisecond
)

// idleDrain is how much of the time that a shutdown may take is for clients that send nothing.
func idleDrain(deadline time.Time, bounded bool) time.Duration {
	if !bounded {
		return maxIdleDrain
	}
	return min(maxIdleDrain, time.Until(deadline)/4)
}

// drain makes the session end when it may. One that sends nothing may from idle on. It may be
// called from any goroutine.
func (s *session) drain(idle time.Time) {
	s.idleEnd = idle
	if s.setPhase(draining) == handshaking {
		s.nc.SetReadDeadline(idle)
		return
	}
	s.nc.SetReadDeadline(time.Unix(1, 0)) // so that it looks
	s.reg.Wake()
}

// tryClose ends the session of a server that shuts down, if that is between two of its commands; asked
// says that requests have just been passed on. It is called with the socket corked. It returns true
// if there is something to handle, and else leaves the next read to serve.
func (s *session) tryClose(asked bool) (more bool) {
	s.nc.SetReadDeadline(time.Time{})
	had := s.watchedBytes
	answers := s.pipe.Barrier()
	select {
	case <-answers.Done:
	default:
		asked = true
		s.await(answers)
	}
	if s.watchedBytes != had && s.readErr == nil {
		return true
	}
	next := s.idleEnd
	switch {
	case s.readErr != nil:
		return false
	case !s.atCommandBoundary():
		next = time.Time{} // until the server's patience ends
	case !s.holdsNoLock(&next):
	case s.hasUnread():
		return s.end > s.start
	case asked || !time.Now().Before(s.idleEnd):
		s.closeGracefully()
		return false
	}
	s.setCorked(false)
	s.nc.SetReadDeadline(next)
	return false
}

// hold has what is written wait for what follows, or the end, or ends that.
func (s *session) setCorked(on bool) {
	if on {
		s.setPhase(corked)
	} else {
		s.setPhase(draining)
	}
	s.cork(on)
}

// atCommandBoundary reports whether the session is between two commands that belong to nothing larger.
func (s *session) atCommandBoundary() bool {
	state, _ := s.pipe.State()
	return s.start == s.end && !s.streaming && !state.InMulti && !state.Watching
}

// holdsNoLock reports whether the session holds no lock: the end of the connection would release it, if
// it is a session lock, or leave it to its timeout, if it is to be released without a token. If it
// does, until is when to look again at the latest.
func (s *session) holdsNoLock(until *time.Time) bool {
	end, holds := s.holder.Holds()
	if holds {
		*until = end
	}
	return !holds
}

// unread reports whether the client has sent something that has not been handled.
func (s *session) hasUnread() bool {
	if s.nc != s.raw { // what decrypts may have something
		s.nc.SetReadDeadline(time.Unix(1, 0))
		s.read()
		s.nc.SetReadDeadline(time.Time{})
		if s.end > s.start || s.readErr != nil {
			return true
		}
	}
	n, err := s.peek()
	return n > 0 && err == nil
}

// closeGracefully tells the client that this was all, and waits for a while until it has closed too.
func (s *session) closeGracefully() {
	s.setPhase(drained)
	s.nc.SetReadDeadline(time.Now().Add(lingerTimeout))
	s.linger()
}

// closeWrite ends what is sent to the client, which is to close too. It may be called from any
// goroutine.
func (s *session) closeWrite() (err error) {
	if conn, ok := s.nc.(*tls.Conn); ok {
		conn.CloseWrite() // its own goodbye
	}
	if conn, ok := s.raw.(interface{ CloseWrite() error }); ok {
		err = conn.CloseWrite()
	} else {
		err = s.raw.Close()
	}
	s.setPhase(closed)
	s.nc.SetReadDeadline(time.Now().Add(lingerTimeout))
	return err
}

// peek looks at what the kernel has for the connection, see socket.Socket.Peek.
func (s *session) peek() (n int, err error) {
	if s.socket == nil {
		return 0, syscall.EAGAIN
	}
	return s.socket.Peek()
}
