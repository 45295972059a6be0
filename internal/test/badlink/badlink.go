package badlink

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// State is how bytes pass, in both directions unless a field says otherwise.
type State struct {
	Refuse  bool          // new connections are closed at once
	HoldUp  bool          // nothing passes from the client's side; it waits
	HoldDn  bool          // nothing passes to the client's side; it waits
	Latency time.Duration // of each piece
	Piece   int           // most bytes that pass at once; 0 is as many as come
	Rate    int           // bytes per second of each connection and direction; 0 is without limit
	Corrupt float64       // probability that a byte that passes has one bit changed
}

// Link forwards connections to one address.
type Link struct {
	ln         net.Listener
	dial       Dial
	ctx        context.Context
	end        context.CancelFunc
	goroutines sync.WaitGroup

	mu      sync.Mutex
	to      string             // guarded by mu
	also    []net.Listener     // guarded by mu
	state   State              // guarded by mu
	away    time.Duration      // guarded by mu
	held    int                // guarded by mu; pieces that wait
	changed chan struct{}      // guarded by mu; closed when state changes
	pairs   map[*pair]struct{} // guarded by mu
	random  *rand.Rand         // guarded by mu
	insert  Insertion          // guarded by mu
	tear    *tear              // guarded by mu
}

// pair is the two ends of a connection.
type pair struct {
	near, far net.Conn
	ctx       context.Context // ends with the connection
	end       context.CancelFunc
	frozen    chan struct{} // guarded by Link.mu; nil, or closed by Thaw: see Freeze
}

// New makes a link to address to, on a free loopback port. seed decides which bytes are corrupted.
func New(to string, seed uint64) (*Link, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	// Long: on a busy machine the server can be late, and the client would be reset.
	dialer := net.Dialer{Timeout: 30 * time.Second}
	return NewOn(ln, dialer.DialContext, to, seed), nil
}

// Dial makes connections as net.Dialer's DialContext does.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// NewOn is New for the connections that ln accepts, with those that dial makes. Both are TCP's, or
// of another network that can close one direction.
func NewOn(ln net.Listener, dial Dial, to string, seed uint64) *Link {
	l := &Link{ln: ln, dial: dial, to: to, changed: make(chan struct{}),
		pairs: map[*pair]struct{}{}, random: rand.New(rand.NewPCG(seed, 0))}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.Also(ln)
	return l
}

// Also has the link accept the connections of another listener, too, which ends with it.
func (l *Link) Also(ln net.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.also = append(l.also, ln)
	l.goroutines.Go(func() { l.accept(ln) }) // ends with ln; Close waits for it
}

// Addr is where the link listens.
func (l *Link) Addr() string { return l.ln.Addr().String() }

// Close ends the link and its connections.
func (l *Link) Close() {
	l.end()
	l.mu.Lock()
	for _, ln := range l.also {
		ln.Close()
	}
	l.mu.Unlock()
	l.Reset()
	l.goroutines.Wait()
}

// Set changes how bytes pass from now on. Held bytes continue.
func (l *Link) Set(state State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = state
	close(l.changed)
	l.changed = make(chan struct{})
}

// Hold stops the bytes to and fro, and keeps connections open; Release lets them go on.
func (l *Link) Hold() { l.Set(State{HoldUp: true, HoldDn: true}) }

// HoldReplies does the same with bytes from the far end only.
func (l *Link) HoldReplies() { l.Set(State{HoldDn: true}) }

// Release makes the link a good one.
func (l *Link) Release() { l.Set(State{}) }

// Holding reports whether something has come that is held.
func (l *Link) Holding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held > 0
}

// Away delays everything by d in each direction, in addition to the state's delays. Unlike the
// state's Latency it takes none of the link's capacity: pieces travel at the same time.
func (l *Link) Away(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = d
}

// Lead makes new connections lead to another server, as a name or a balancer does.
func (l *Link) Lead(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = addr
}

// Reset resets all connections. Held bytes are lost.
func (l *Link) Reset() { l.each(func(p *pair) { p.drop(true) }) }

// Cut closes all connections at once. Held bytes are lost.
func (l *Link) Cut() { l.each(func(p *pair) { p.drop(false) }) }

// Hangup closes all connections in good order, both sides, as a middlebox does that forgets them.
// Held bytes are lost.
func (l *Link) Hangup() {
	l.each(func(p *pair) {
		closeWrite(p.near)
		closeWrite(p.far)
	})
}

// Freeze has nothing pass on the connections that are open, which do not end: what comes on them is
// acknowledged, and passes after Thaw. New connections are served.
func (l *Link) Freeze() {
	l.each(func(p *pair) {
		if p.frozen == nil {
			p.frozen = make(chan struct{})
		}
	})
}

// Thaw ends Freeze. The held bytes have passed when Holding says no.
func (l *Link) Thaw() {
	l.each(func(p *pair) {
		if p.frozen != nil {
			close(p.frozen)
			p.frozen = nil
		}
	})
}

// awaitThaw waits while the connection is frozen, and returns how many pieces it has held. ok is
// false when the connection ends first.
func (l *Link) awaitThaw(p *pair) (held int, ok bool) {
	l.mu.Lock()
	frozen := p.frozen
	l.mu.Unlock()
	if frozen == nil {
		return 0, true
	}
	l.hold(1)
	select {
	case <-frozen:
		return 1, true
	case <-p.ctx.Done():
		return 1, false
	}
}

// ResetOne resets any one connection.
func (l *Link) ResetOne() {
	one := false
	l.each(func(p *pair) {
		if !one {
			p.drop(true)
		}
		one = true
	})
}

func (l *Link) each(do func(*pair)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := range l.pairs {
		do(p)
	}
}

func (p *pair) drop(reset bool) {
	p.end()
	drop(p.near, reset)
	drop(p.far, reset)
}

// drop closes one end of a connection at once, by a reset if that is asked for and the transport
// has one.
func drop(c net.Conn, reset bool) {
	if end, ok := c.(tlsEnd); ok {
		c = end.raw
	}
	if tcp, ok := c.(interface{ SetLinger(int) error }); ok && reset {
		tcp.SetLinger(0)
	}
	c.Close()
}

func closeWrite(c net.Conn) { c.(interface{ CloseWrite() error }).CloseWrite() }

func (l *Link) accept(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, until others close theirs
			continue
		}
		l.goroutines.Go(func() { l.serve(nc) }) // ends with its connections; Close waits for it
	}
}

func (l *Link) serve(near net.Conn) {
	state, to, insert := l.begin()
	if state.Refuse {
		drop(near, true)
		return
	}
	p := &pair{near: near}
	p.ctx, p.end = context.WithCancel(l.ctx)
	defer p.end()
	var err error
	if p.far, err = l.dial(p.ctx, "tcp", to); err != nil {
		drop(near, true)
		return
	}
	l.mu.Lock()
	l.pairs[p] = struct{}{}
	if l.ctx.Err() != nil {
		p.drop(false)
	}
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.pump(p, p.far, near, true, nil); closeWrite(p.far) })
	both.Go(func() { l.pump(p, near, p.far, false, insert); p.end(); near.Close(); p.far.Close() })
	both.Wait()
	l.mu.Lock()
	delete(l.pairs, p)
	l.mu.Unlock()
}

// begin is what a new connection must know.
func (l *Link) begin() (state State, to string, insert Insertion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state, l.to, l.insert
}
