package passthrough

// Connections lead to servers, which can change. A name, a balancer or an address that moves can
// lead to another server at any time, while the former one goes on to answer on the connections
// that it has. The requests of one client all go to one server, that of its home, as they would
// without the proxy. So a lane serves clients whose homes lead where it does. When new connections
// lead elsewhere, lanes to the former server are given up, and the clients that it still has stay
// at home.

import (
	"context"
	"sync"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/upstream"
)

// whereabouts is what is known of the server that a client's home leads to or, without one, that the
// last connection did.
type whereabouts struct {
	server  upstream.Server
	home    bool   // for Pool.join: there is one, which a lane must agree with
	apart   bool   // for Pool.join: a lane is wanted all the same
	known   bool   // the client has used a connection
	term    uint64 // Pool.term when it was dialled
	asking  bool   // its answer is missing
	askedAt int64  // when it answered, as monotonic.Now; 0 if it was not asked
}

// lanes reports whether a lane leads there; known is false if the home must be asked first.
func (w *whereabouts) lanes(l *lane) (same, known bool) {
	if !w.known {
		return true, true
	}
	same, known = l.server.Is(w.server)
	return same && (l.server.Question() != nil || l.term == w.term), known
}

// lookEvery is how often a new connection is opened, at most, to see where it leads.
const lookEvery = time.Second

// newest is the server that the latest connection has led to.
type newest struct {
	looking sync.Mutex // held while a new connection is opened for that

	mu       sync.Mutex
	lookedAt map[bool]time.Time // guarded by mu; for clients that have logged in, and for others
	known    bool               // guarded by mu
	server   upstream.Server    // guarded by mu
}

// due reports whether it is time to look again, as one who has logged in or not. Connections to a
// cluster lead nowhere else.
func (n *newest) due(own bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.known && n.server.Addr == "" || time.Since(n.lookedAt[own]) < lookEvery {
		return false
	}
	n.lookedAt[own] = time.Now()
	return true
}

// elsewhere reports whether new connections do not lead where a home does.
func (n *newest) elsewhere(at *whereabouts) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.known && at.known && n.server.Differs(at.server)
}

// look finds out where new connections lead, at most once every lookEvery. It does not wait.
func (p *Pool) look(as upstream.Identity) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lookLocked(as)
}

// lookForOwn is look if the proxy has connections of its own, that may lead to another server by now.
func (p *Pool) lookForOwn(as upstream.Identity) {
	if p.Upstream.HasOwn() {
		p.look(as)
	}
}

// lookLocked is look with mu held.
func (p *Pool) lookLocked(as upstream.Identity) {
	n := &p.newest
	if p.closed || !n.due(as != p.Upstream.Initial) || !n.looking.TryLock() {
		return
	}
	// Ends within DialTimeout, or at once when Close is called, which waits for it.
	p.goroutines.Go(func() {
		defer n.looking.Unlock()
		ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
		defer cancel()
		if conn, server, err := p.Upstream.DialKnown(ctx, as); err == nil {
			upstream.CloseAndWait(conn)
			p.found(server)
		}
	})
}

// found records where a new connection has led. If that is another server than before, lanes and
// connections of the proxy's own to that are given up.
func (p *Pool) found(server upstream.Server) {
	n := &p.newest
	n.mu.Lock()
	moved := n.known && n.server.Differs(server)
	if n.known && !moved {
		server = n.server.Joined(server)
	}
	n.known, n.server = true, server
	n.mu.Unlock()
	if moved {
		p.retire(func(l *lane) bool { return server.Differs(l.server) })
	}
	if p.Upstream.CloseOwn(server) || moved {
		p.OnMoved(server)
	}
}

// retire makes sessions leave lanes, and others not use them.
func (p *Pool) retire(which func(*lane) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, group := range p.groups {
		for _, l := range group.lanes {
			if !which(l) {
				continue
			}
			l.retired.Store(true)
			if l.users == 0 {
				p.closeLocked(l)
			}
		}
	}
}

// laneReadOnly follows a write that a lane's server has refused as a replica: where do new
// connections lead? If servers cannot be told from one another, what was dialled before and what is
// dialled from now on are not used together: a term has ended. A client's script can say what a
// replica says, so a term lasts for lookEvery.
func (p *Pool) laneReadOnly(l *lane) {
	if l.server.Addr == "" {
		return // its connections follow the cluster
	}
	if l.server.Question() == nil {
		p.mu.Lock()
		current := l.term == p.term && monotonic.Now() >= p.termEnds
		if current {
			p.term++
			p.termEnds = monotonic.Now() + int64(lookEvery)
		}
		p.mu.Unlock()
		if current {
			p.retire(func(l *lane) bool { return l.server.Question() == nil })
		}
	}
	p.look(l.key.Identity)
}

func (p *Pool) currentTerm() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term
}
