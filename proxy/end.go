package proxy

// How a session ends, once nothing more is read of its client.

// finish gives the client what it is still owed, and closes its connections.
func (s *session) finish() {
	answered := s.pipe.Answered()
	if answered {
		s.judgeUnheard() // before a reset is all that the kernel still knows of the connection
	}
	if s.is(parting) {
		s.pipe.Close()
	} else {
		s.pipe.ClientGone()
	}
	s.pipe.Wait()
	s.leaveSeat()
	if !answered {
		s.judgeUnheard()
	}
	s.nc.Close()
}
