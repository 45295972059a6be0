package passthrough

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"lockproxy/internal/monotonic"
	"lockproxy/internal/upstream"
)

// spareFor is for how long a home that waits for its client can be silent, at most. A middlebox
// between the proxy and Redis can cut connections that are silent for longer, and tell nobody.
const spareFor = 30 * time.Second

// maxSpares is how many spares there are at most, with those that clients have given back. While
// there are more homes, there can be as many spares as homes, up to manySpares: clients that log
// in, ask and leave would not find one otherwise when many of them come at once.
const (
	maxSpares  = 32
	manySpares = 128
)

// spares are homes for clients to come. If a home were opened only when a client needs one, other
// clients' requests would overtake its own meanwhile; with TLS or in front of a cluster that takes
// long.
type spares struct {
	mu     sync.Mutex
	list   []spare     // guarded by mu; the one that is silent for longest is the first
	coming int         // guarded by mu; how many are opened or given back, and not in list yet
	closed bool        // guarded by mu
	reused uint64      // guarded by mu; how often a client got what another had
	expiry *time.Timer // guarded by mu; closes those that are silent for too long; nil for none
}

// spare is a connection as new.
type spare struct {
	net.Conn
	server upstream.Server
	term   uint64 // Pool.term when it was dialled
	// Redis has said on this connection that a client must log in first: this can give nobody
	// anything.
	nobody bool
	used   bool            // a client has had it
	asNew  bool            // and has left it so
	labels upstream.Labels // that this client has given itself
	waited bool            // it was in the list: Redis has not refused it
	// numbersShown is numbers.shown when it was dialled: see numbers.hidden
	numbersShown uint64
	doubt        doubt // of the client that gets it
	// heardAt is when Redis last said something on it, as monotonic.Now.
	heardAt int64
}

// popSpare returns a connection as new, if there is one, and has others opened. For a client that
// Redis has let in it does not wait. For another it can wait for Redis: what Redis has let in
// serves it only as long as Redis lets in new connections, too. Both find out where new connections
// lead.
func (p *Pool) popSpare(letIn bool) (found spare, ok bool) {
	defer p.wantSpares()
	s := &p.spares
	if open, _ := s.count(); open == 0 {
		return spare{}, false
	}
	keeps, doubted := letIn, doubt(0) // those that are not for this client are for others
	if letIn {
		p.look(p.Upstream.Initial)
	} else {
		said, of := p.admits()
		letIn, keeps, doubted = said == admitted, said == unknown, of
	}
	term := p.currentTerm()
	var useless []spare
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.list) - 1; i >= 0 && !ok; i-- {
		found = s.list[i]
		if ok = letIn != found.nobody; !ok && keeps {
			continue
		}
		s.list = slices.Delete(s.list, i, i+1)
		ok = ok && p.isCurrent(&found, term) && found.numbersShown == p.numbers.shown.Load() &&
			upstream.Fresh(found.Conn)
		if !ok {
			useless = append(useless, found)
		}
	}
	if ok && found.used {
		s.reused++
	}
	if found.doubt = 0; letIn {
		found.doubt = doubted
	}
	p.dropLocked(useless)
	return found, ok
}

// isCurrent reports whether a spare leads where new connections do, and is not silent for too long.
// term is Pool.term.
func (p *Pool) isCurrent(s *spare, term uint64) bool {
	at := whereabouts{server: s.server, known: true}
	return s.term == term && !p.newest.elsewhere(&at) &&
		monotonic.Since(s.heardAt) < p.spareLife()
}

// dropLocked closes spares that nobody is to have. It does not wait for their end. spares.mu is
// held.
func (p *Pool) dropLocked(useless []spare) {
	if len(useless) == 0 {
		return
	}
	p.goroutines.Go(func() { // ends when they are closed; Close waits for it
		for _, found := range useless {
			upstream.CloseAndWait(found.Conn)
		}
	})
}

// spareLife is for how long a spare can be silent, at most. Redis takes it for idle after its own
// timeout, most of which the client is to have.
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
	for !s.closed && len(s.list)+s.coming < p.Spares {
		s.coming++
		p.goroutines.Go(func() { // ends within DialTimeout, or with Close, which waits for it
			found, err := p.openSpare()
			p.spareCame(found, err == nil)
		})
	}
}

func (s *spares) count() (open int, reused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list), s.reused
}

// openSpare opens a connection as new. It has none after an error.
func (p *Pool) openSpare() (found spare, err error) {
	ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
	defer cancel()
	found.term, found.numbersShown = p.currentTerm(), p.numbers.shown.Load()
	asked := p.door.asks()
	found.Conn, err = p.dialHome(ctx, upstream.Setup{Identity: p.Upstream.Initial})
	if err != nil {
		return spare{}, err
	}
	found.server, found.nobody, err = p.Upstream.Prepare(ctx, found.Conn, p.Upstream.Initial.User)
	if err != nil {
		return spare{}, err
	}
	if found.server.Addr != "" { // of a cluster Prepare asks nothing
		p.door.shows(asked, found.nobody, true)
	}
	found.heardAt = monotonic.Now()
	return found, nil
}

// addLocked adds a spare, unless there are to be none. spares.mu is held.
func (p *Pool) addLocked(found spare) (added bool) {
	s := &p.spares
	if s.closed {
		return false
	}
	at, _ := slices.BinarySearchFunc(s.list, found.heardAt, func(other spare, heardAt int64) int {
		return cmp.Compare(other.heardAt, heardAt)
	})
	found.waited = true
	s.list = slices.Insert(s.list, at, found)
	p.expireLocked()
	return true
}

// expireSpares closes the spares that are silent for too long.
func (p *Pool) expireSpares() {
	p.spares.mu.Lock()
	defer p.spares.mu.Unlock()
	p.expireLocked()
}

// expireLocked is expireSpares with spares.mu held.
func (p *Pool) expireLocked() {
	s, life := &p.spares, p.spareLife()
	fresh := 0
	for fresh < len(s.list) && monotonic.Since(s.list[fresh].heardAt) >= life {
		fresh++
	}
	p.dropLocked(slices.Clone(s.list[:fresh]))
	s.list = slices.Delete(s.list, 0, fresh)
	if s.expiry != nil {
		s.expiry.Stop()
		s.expiry = nil
	}
	if len(s.list) > 0 && !s.closed {
		left := life - monotonic.Since(s.list[0].heardAt)
		s.expiry = time.AfterFunc(left, p.expireSpares) // close stops it
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
		upstream.CloseAndWait(found.Conn)
	}
	s.list = nil
}

// findHome returns a connection for a home: a spare that is set up, unless it is to be dialled, or
// a new one. letIn is popSpare's.
func (p *Pool) findHome(
	ctx context.Context, setup upstream.Setup, letIn, dialled bool,
) (found spare, err error) {
	ok := false
	if !dialled && (!p.spread || setup.Identity == p.Upstream.Initial) {
		found, ok = p.popSpare(letIn)
	}
	if ok && setup != (upstream.Setup{Identity: p.Upstream.Initial}) {
		err = p.Upstream.SetUp(ctx, found.Conn, setup)
		found.heardAt = monotonic.Now()
	}
	var refused *upstream.Refused
	if ok && (err == nil || errors.As(err, &refused)) {
		return found, err
	}
	found = spare{term: p.currentTerm(), numbersShown: p.numbers.shown.Load()}
	if found.Conn, err = p.dialHome(ctx, setup); err == nil {
		found.server, found.heardAt = p.Upstream.ServerOf(found.Conn), monotonic.Now()
	}
	return found, err
}

// dialHome opens a connection for a home. It tells OnDial, unless only the login that a client has
// sent is refused, or the caller has given up before the time of a connection had passed.
func (p *Pool) dialHome(ctx context.Context, setup upstream.Setup) (net.Conn, error) {
	conn, err := p.Upstream.Dial(ctx, setup)
	refused := upstream.IsLoginDemand(err) && loginOf(setup.Identity) != loginOf(p.Upstream.Initial)
	cause := context.Cause(ctx)
	if !refused && (err == nil || cause == nil || cause == context.DeadlineExceeded) {
		p.OnDial(err)
	}
	return conn, err
}

// takesSpare reports whether there is room for another spare, and keeps it free for that. Where
// clients share nothing, each has a connection that no other has had.
func (p *Pool) takesSpare() bool {
	room := max(maxSpares, min(int(p.homes.open.Load()), manySpares))
	s := &p.spares
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.Spares == 0 || p.LanesPerKey == 0 || s.closed || len(s.list)+s.coming >= room {
		return false
	}
	s.coming++
	return true
}

// giveBack makes a spare of what a client does not need any more, if it is still open. It does not
// wait for Redis. The reader of the connection has ended.
func (p *Pool) giveBack(given spare, open bool) {
	if given.asNew || !open {
		p.spareCame(given, open && upstream.Fresh(given.Conn))
		return
	}
	// Ends within DialTimeout, or at once when Close is called, which waits for it.
	p.goroutines.Go(func() {
		ctx, cancel := context.WithTimeout(p.ctx, p.DialTimeout)
		defer cancel()
		var err error
		asked := p.door.asks()
		given.server, given.nobody, err = p.Upstream.Reset(ctx, given.Conn, given.server,
			given.labels)
		given.heardAt = monotonic.Now()
		if err == nil {
			p.door.shows(asked, given.nobody, false)
		}
		p.spareCame(given, err == nil)
	})
}

// spareCame adds what there was room for, or closes it, if it is open.
func (p *Pool) spareCame(given spare, good bool) {
	s := &p.spares
	s.mu.Lock()
	s.coming--
	added := good && p.addLocked(given)
	s.mu.Unlock()
	if !added && given.Conn != nil {
		upstream.CloseAndWait(given.Conn)
	}
}
