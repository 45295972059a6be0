package passthrough

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"lockproxy/internal/upstream"
)

// spareFor is for how long a home waits for its client, at most. What lies between the proxy and
// Redis can cut connections that are silent for longer, and tell nobody.
const spareFor = 30 * time.Second

// spares are homes for clients to come. If a home were opened only when a client needs one, other
// clients' requests would overtake its own meanwhile; with TLS or in front of a cluster that takes
// long.
type spares struct {
	mu      sync.Mutex
	list    []spare     // guarded by mu; the oldest is the first
	filling bool        // guarded by mu; fillSpares runs
	coming  int         // guarded by mu; how many are given back, and not in list yet
	closed  bool        // guarded by mu
	reused  uint64      // guarded by mu; how often a client got what another had
	expiry  *time.Timer // guarded by mu; closes those that have waited for too long; nil for none
}

// spare is a connection as new.
type spare struct {
	net.Conn
	server upstream.Server
	term   uint64 // Pool.term when it was dialled
	// Redis has said on this connection that a client must log in first: this can give nobody
	// anything.
	nobody bool
	used   bool // a client has had it
	since  time.Time
}

// popSpare returns a connection as new, if there is one, and has others opened. It can wait for
// Redis: what Redis has let in serves only as long as it lets in new connections, too.
func (p *Pool) popSpare() (found spare, ok bool) {
	p.wantSpares()
	s := &p.spares
	if open, _ := s.count(); open == 0 {
		return spare{}, false
	}
	letIn := p.admits() == admitted
	term := p.currentTerm()
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.list) > 0 && !ok {
		last := len(s.list) - 1
		found, s.list = s.list[last], s.list[:last]
		at := whereabouts{server: found.server, known: true}
		ok = letIn != found.nobody && found.term == term && !p.newest.elsewhere(&at) &&
			time.Since(found.since) < p.spareLife() && upstream.Fresh(found.Conn)
		if !ok {
			defer found.Close()
		} else if found.used {
			s.reused++
		}
	}
	return found, ok
}

// spareLife is for how long a spare waits for its client, at most. Redis takes it for idle after its
// own timeout, most of which the client is to have.
func (p *Pool) spareLife() time.Duration {
	if idle := time.Duration(p.sharing.timeout.Load()); idle > 0 {
		return min(spareFor, idle/3)
	}
	return spareFor
}

// wantSpares has homes opened for clients to come, unless there are enough. It does not wait.
func (p *Pool) wantSpares() {
	s := &p.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.filling && !s.closed && len(s.list) < p.Spares {
		s.filling = true
		// Ends with Close, which waits for it, or when there are enough.
		p.goroutines.Go(p.fillSpares)
	}
}

func (s *spares) count() (open int, reused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list), s.reused
}

// fillSpares opens homes until there are enough, or one can't be opened.
func (p *Pool) fillSpares() {
	s := &p.spares
	for enough := false; !enough; {
		found, err := p.openSpare()
		s.mu.Lock()
		if err == nil {
			s.addLocked(found)
		}
		enough = err != nil || s.closed || len(s.list) >= p.Spares
		s.filling = !enough
		s.mu.Unlock()
	}
}

func (p *Pool) openSpare() (found spare, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
	defer cancel()
	found.term = p.currentTerm()
	found.Conn, err = p.dialHome(ctx, upstream.Setup{Identity: p.Upstream.Initial})
	if err != nil {
		return spare{}, err
	}
	found.server, found.nobody, err = p.Upstream.Prepare(ctx, found.Conn)
	return found, err
}

// addLocked adds a spare, or closes it if there are to be none. mu is held.
func (s *spares) addLocked(found spare) {
	if s.closed {
		found.Close()
		return
	}
	found.since = time.Now()
	s.list = append(s.list, found)
	if s.expiry == nil {
		s.expiry = time.AfterFunc(spareFor, s.expire) // close stops it
	}
}

// expire closes the spares that have waited for too long.
func (s *spares) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = slices.DeleteFunc(s.list, func(old spare) bool {
		expired := time.Since(old.since) >= spareFor
		if expired {
			defer old.Close()
		}
		return expired
	})
	s.expiry = nil
	if len(s.list) > 0 {
		s.expiry = time.AfterFunc(spareFor-time.Since(s.list[0].since), s.expire)
	}
}

// close closes all spares. There will be no others.
func (s *spares) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.expiry != nil {
		s.expiry.Stop()
	}
	for _, found := range s.list {
		found.Close()
	}
	s.list = nil
}

// findHome returns a connection for a home: a spare that is set up, or a new one.
func (p *Pool) findHome(ctx context.Context, setup upstream.Setup) (found spare, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.DialTimeout)
	defer cancel()
	ok := false
	if !p.Upstream.IsCluster() || setup == (upstream.Setup{Identity: p.Upstream.Initial}) {
		found, ok = p.popSpare()
	}
	if ok {
		if err = p.Upstream.SetUp(ctx, found.Conn, setup); err == nil {
			return found, nil
		}
		found.Close()
		var refused *upstream.Refused
		if errors.As(err, &refused) {
			return spare{}, err
		}
	}
	found = spare{term: p.currentTerm()}
	if found.Conn, err = p.dialHome(ctx, setup); err == nil {
		found.server = p.Upstream.ServerOf(found.Conn)
	}
	return found, err
}

// dialHome opens a connection for a home.
func (p *Pool) dialHome(ctx context.Context, setup upstream.Setup) (net.Conn, error) {
	conn, err := p.Upstream.Dial(ctx, setup)
	p.OnDial(err)
	return conn, err
}
