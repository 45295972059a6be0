package passthrough

// Stats counts upstream connections.
type Stats struct {
	Lanes  int    // connections that sessions share
	Shared int    // sessions that use one of these
	Homes  int    // connections of one session each
	Spares int    // connections for sessions to come
	Opened uint64 // how often a session got one of its own
	Reused uint64 // how often that was one that another had had
	// Asked is how often new connections have shown whether Redis lets clients in, or soon will, and
	// Answered is the last of these that has shown it.
	Asked, Answered uint64
}

// Stats returns the current numbers.
func (p *Pool) Stats() (s Stats) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, group := range p.groups {
		s.Lanes += len(group.lanes)
		for _, l := range group.lanes {
			s.Shared += l.users
		}
	}
	s.Homes, s.Opened = int(p.homes.open.Load()), p.homes.opened.Load()
	s.Spares, s.Reused = p.spares.count()
	s.Asked, s.Answered, _ = p.door.judged()
	return s
}
