package proxy

// How a session ends, once nothing more is read of its client.

import "lockproxy/passthrough"

// finish gives the client what it is still owed, and closes its connections.
func (s *session) finish() {
	answered := s.pipe.Status().Answered
	if answered {
		s.markUnread() // before a reset is all that the kernel still knows of the connection
	}
	if s.is(drained) {
		s.pipe.End(passthrough.AtOnce)
	} else {
		s.pipe.End(passthrough.ClientGone)
	}
	s.pipe.Wait()
	s.reg.Unregister()
	if !answered {
		s.markUnread()
	}
	s.nc.Close()
}
