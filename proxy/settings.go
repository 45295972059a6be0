package proxy

// SetMaxClients changes how many clients are served at one time, from the next one on; those that are there stay.
func (s *Server) SetMaxClients(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.MaxClients = n
	if s.reserveForAll {
		s.lanes.SetReserve(reserveLimit(openFiles(), n))
	}
}
