//go:build linux

package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// Link is how bytes pass, in both directions unless a field says otherwise.
type Link struct {
	Refuse  bool          // new connections are closed at once
	HoldUp  bool          // nothing passes from the client's side; it waits
	HoldDn  bool          // nothing passes to the client's side; it waits
	Latency time.Duration // of each piece
	Piece   int           // most bytes that pass at once; 0 is as many as come
	Rate    int           // bytes per second of each connection and direction; 0 is without limit
	Corrupt float64       // probability that a byte that passes has one bit changed
}

// Relay forwards connections to one address.
type Relay struct {
	to   string
	ln   net.Listener
	dial Dial
	ctx  context.Context
	end  context.CancelFunc

	goroutines sync.WaitGroup

	mu      sync.Mutex
	link    Link
	away    time.Duration         // guarded by mu
	changed chan struct{}         // guarded by mu; closed when link changes
	conns   map[net.Conn]struct{} // guarded by mu; both sides of each
	random  *rand.Rand            // guarded by mu
}

// New starts a Relay to address to, on a free loopback port.
// seed decides which bytes are corrupted.
func New(to string, seed uint64) (*Relay, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: 30 * time.Second}
	return NewOn(ln, dialer.DialContext, to, seed), nil
}

// Dial makes connections as net.Dialer's DialContext does.
type Dial = func(ctx context.Context, network, addr string) (net.Conn, error)

// NewOn is New for the connections that ln accepts, with those that dial makes. Both are TCP's, or
// of another network that can close one direction and reset connections.
func NewOn(ln net.Listener, dial Dial, to string, seed uint64) *Relay {
	r := &Relay{to: to, ln: ln, dial: dial, changed: make(chan struct{}),
		conns: map[net.Conn]struct{}{}, random: rand.New(rand.NewPCG(seed, 0))}
	r.ctx, r.end = context.WithCancel(context.Background())
	r.goroutines.Add(1)
	go r.accept() // ends with ln; Close waits for it
	return r
}

// tcp is what a *net.TCPConn has and a net.Conn has not.
type tcp interface {
	CloseWrite() error
	SetLinger(sec int) error
}

// Addr is where the Relay listens.
func (r *Relay) Addr() string { return r.ln.Addr().String() }

// Close ends the Relay and its connections.
func (r *Relay) Close() {
	r.end()
	r.ln.Close()
	r.Cut()
	r.goroutines.Wait()
}

// Set changes how bytes pass from now on. Held bytes continue.
func (r *Relay) Set(link Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link = link
	close(r.changed)
	r.changed = make(chan struct{})
}

// Away delays everything by d in each direction, in addition to the link's delays. Unlike a Link's
// Latency it takes none of the link's capacity: pieces travel at the same time.
func (r *Relay) Away(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = d
}

func (r *Relay) distance() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away
}

// Cut resets all connections. Held bytes are lost.
func (r *Relay) Cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for nc := range r.conns {
		reset(nc)
	}
}

// Hangup closes all connections in good order, both sides, as a middlebox does that forgets them.
// Held bytes are lost.
func (r *Relay) Hangup() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for nc := range r.conns {
		nc.(tcp).CloseWrite()
	}
}

// CutOne resets any one connection.
func (r *Relay) CutOne() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for nc := range r.conns {
		reset(nc)
		return
	}
}

func reset(nc net.Conn) {
	nc.(tcp).SetLinger(0)
	nc.Close()
}

func (r *Relay) accept() {
	defer r.goroutines.Done()
	for {
		nc, err := r.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors, until others close theirs
			continue
		}
		r.goroutines.Add(1)
		go r.serve(nc) // ends with its connections; Close waits for it
	}
}

func (r *Relay) serve(client net.Conn) {
	defer r.goroutines.Done()
	if link, _ := r.state(); link.Refuse {
		reset(client)
		return
	}
	// Long: on a busy machine the server can be late, and client would be reset.
	server, err := r.dial(r.ctx, "tcp", r.to)
	if err != nil {
		reset(client)
		return
	}
	r.mu.Lock()
	r.conns[client], r.conns[server] = struct{}{}, struct{}{}
	if r.ctx.Err() != nil {
		client.Close()
		server.Close()
	}
	r.mu.Unlock()
	var both sync.WaitGroup
	ended, stop := context.WithCancel(r.ctx)
	both.Go(func() { r.pump(ended, server, client, true); server.(tcp).CloseWrite() })
	both.Go(func() { r.pump(ended, client, server, false); stop(); client.Close(); server.Close() })
	both.Wait()
	stop()
	r.mu.Lock()
	delete(r.conns, client)
	delete(r.conns, server)
	r.mu.Unlock()
	client.Close()
	server.Close()
}

func (r *Relay) state() (Link, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.link, r.changed
}

// pump passes bytes until either side ends or the Relay does.
func (r *Relay) pump(ctx context.Context, to, from net.Conn, up bool) {
	buf := make([]byte, 32<<10)
	way := &way{to: to}
	defer way.end()
	// the peer has closed; from is read to its end nevertheless, or it would see a reset
	over := false
	for {
		link, _ := r.state()
		most := len(buf)
		if link.Piece > 0 {
			most = min(most, link.Piece)
		}
		n, err := from.Read(buf[:most])
		if n > 0 {
			if !r.delay(ctx, n, up) {
				return
			}
			r.corrupt(buf[:n])
			werr := way.write(buf[:n], r.distance())
			if errors.Is(werr, syscall.ECONNRESET) && !over {
				reset(from)
				return
			}
			over = over || werr != nil
		}
		if errors.Is(err, syscall.ECONNRESET) {
			reset(to)
		}
		if err != nil {
			return
		}
	}
}

// delay holds back n bytes for as long as the link says. It
// returns false when the connection ends first.
func (r *Relay) delay(ctx context.Context, n int, up bool) bool {
	waited := false
	for {
		link, changed := r.state()
		if (up && !link.HoldUp || !up && !link.HoldDn) && !waited {
			pause := link.Latency
			if link.Rate > 0 {
				pause += time.Duration(n) * time.Second / time.Duration(link.Rate)
			}
			if pause == 0 {
				return true
			}
			waited = true
			select {
			case <-ctx.Done():
				return false
			case <-time.After(pause):
			}
			continue
		}
		if up && !link.HoldUp || !up && !link.HoldDn {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		}
	}
}

func (r *Relay) corrupt(piece []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link.Corrupt == 0 {
		return
	}
	for i := range piece {
		if r.random.Float64() < r.link.Corrupt {
			piece[i] ^= 1 << r.random.IntN(8)
		}
	}
}
