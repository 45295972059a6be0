package passthrough

import (
	"context"
	"net"
	"sync"

	"lockproxy/internal/upstream"
)

// maxSpares is how many homes are open before their clients come.
const maxSpares = 4

// spares are homes for clients to come. In front of a cluster a home is a connection to each
// master. If these were opened only when a client has come, other clients' requests would overtake
// its first ones meanwhile.
type spares struct {
	mu      sync.Mutex
	list    []spare // guarded by mu
	filling bool    // guarded by mu; fillSpares runs
	closed  bool    // guarded by mu

	door door
}

// spare is a connection that can say whether it is still as new.
type spare interface {
	net.Conn
	Fresh() bool
}

// popSpare returns a home for a client that has set nothing up, or nil. It has others opened. It can
// wait for Redis. Spares serve only as long as Redis lets in new connections, too.
func (p *Pool) popSpare(setup upstream.Setup) net.Conn {
	if !p.Upstream.IsCluster() || setup != (upstream.Setup{Identity: p.Upstream.Initial}) {
		return nil
	}
	s := &p.spares
	if s.any() {
		switch s.door.ask(p.goroutines.Go, p.askDoor) {
		case unknown:
			return nil
		case refused:
			s.drop()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.filling && !s.closed {
		s.filling = true
		// Ends with Close, which waits for it, or when there are enough.
		p.goroutines.Go(p.fillSpares)
	}
	for len(s.list) > 0 {
		conn := s.list[0]
		s.list = s.list[1:]
		if conn.Fresh() {
			return conn
		}
		defer conn.Close()
	}
	return nil
}

func (s *spares) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list) > 0
}

// drop closes all spares.
func (s *spares) drop() {
	s.mu.Lock()
	list := s.list
	s.list = nil
	s.mu.Unlock()
	for _, conn := range list {
		conn.Close()
	}
}

// askDoor asks Redis, on a connection of its own, whether it lets new clients in.
func (p *Pool) askDoor() verdict {
	ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
	defer cancel()
	switch err := p.Upstream.StillAdmits(ctx); {
	case ctx.Err() != nil:
		return unknown
	case err != nil:
		return refused
	}
	return admitted
}

// fillSpares opens homes until there are enough, or one can't be opened.
func (p *Pool) fillSpares() {
	s := &p.spares
	for enough := false; !enough; {
		conn, err := p.dialHome(p.ctx, upstream.Setup{Identity: p.Upstream.Initial})
		s.mu.Lock()
		if err == nil && s.closed {
			conn.Close()
		} else if err == nil {
			s.list = append(s.list, conn.(spare))
		}
		enough = err != nil || s.closed || len(s.list) >= maxSpares
		s.filling = !enough
		s.mu.Unlock()
	}
}

// dialHome opens a connection for a home.
func (p *Pool) dialHome(ctx context.Context, setup upstream.Setup) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.DialTimeout)
	defer cancel()
	conn, err := p.Upstream.Dial(ctx, setup)
	p.OnDial(err)
	return conn, err
}

func (p *Pool) closeSpares() {
	p.spares.mu.Lock()
	p.spares.closed = true
	p.spares.mu.Unlock()
	p.spares.drop()
}
