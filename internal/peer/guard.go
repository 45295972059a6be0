// Package peer notices that the machine at the other end of a TCP connection has vanished.
package peer

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// Guard watches whether the machine at the other end of a TCP connection still answers. A process that is stopped, or that doesn't
// read, is no loss: its kernel answers for it.
//
// While nothing is on its way to the peer, keepalive finds the loss. While something is, keepalive rests, and the kernel goes on for 15
// minutes; then the Guard finds it, on Linux only. TCP_USER_TIMEOUT would do so everywhere in the kernel, but it also ends a connection
// whose peer acknowledges everything and has no room for more.
//
// A nil Guard does nothing.
type Guard struct {
	conn   *net.TCPConn
	raw    syscall.RawConn
	within func() time.Duration
	lost   func()

	mu      sync.Mutex
	timer   *time.Timer   // guarded by mu; of the next look, nil while there is none
	set     time.Duration // guarded by mu; what keepalive is set to; 0 for the usual one
	silence silence       // guarded by mu
}

// NewGuard returns a Guard of conn that doesn't look yet, or nil if conn isn't a TCP connection. within is asked at each look for how
// long the peer's machine may answer nothing; 0 ends the looking until the next Start. lost is called once that was too long,
// from a goroutine of its own.
func NewGuard(conn net.Conn, within func() time.Duration, lost func()) *Guard {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil
	}
	return &Guard{conn: tcp, raw: raw, within: within, lost: lost}
}

// minLookEvery is how often a Guard looks at least.
const minLookEvery = time.Second

// Start begins to look, if that hasn't begun. It costs nothing worth mention until the first look, a second later.
func (g *Guard) Start() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer == nil {
		g.timer = time.AfterFunc(minLookEvery, g.look)
	}
}

// Stop ends the looking. It also ends by itself when conn is closed.
func (g *Guard) Stop() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

func (g *Guard) look() {
	if g.lookOnce() {
		g.lost()
	}
}

// lookOnce looks and prepares the next look. It reports whether the peer is lost.
func (g *Guard) lookOnce() (lost bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer == nil { // stopped meanwhile
		return false
	}
	within := g.within()
	if within != g.set {
		g.set = within
		g.conn.SetKeepAliveConfig(KeepAlive(within))
	}
	p, err := stateOf(g.raw)
	silent := g.silence.look(time.Now(), p)
	if lost = within > 0 && p.tries >= minTries && silent >= within; lost || err != nil || within == 0 {
		g.timer, g.silence = nil, silence{}
		return lost
	}
	g.timer.Reset(max(minLookEvery, within/20))
	return false
}

// KeepAlive finds a peer whose machine has vanished within a time, in whole seconds, while nothing is on its way to it. 0 is what Go
// gives every connection.
func KeepAlive(within time.Duration) net.KeepAliveConfig {
	if within == 0 {
		return net.KeepAliveConfig{Enable: true}
	}
	const probes = 3
	interval := max((within / 6).Truncate(time.Second), time.Second)
	return net.KeepAliveConfig{Enable: true, Idle: max(within-probes*interval, time.Second), Interval: interval, Count: probes}
}

// state is what is known of the other end of a connection.
type state struct {
	owes  bool          // it has not acknowledged all that it was sent
	tries int           // how often that was sent again, or the peer was probed, without an answer
	heard time.Duration // how long ago anything came from it
}

// minTries is how many tries must have failed: one packet may be lost on the way to a machine that is well.
const minTries = 2

// silence is since when a peer has answered nothing while it owed something. Its zero value is a peer that owes nothing.
type silence struct{ since time.Time }

// look returns how long the silence has lasted.
func (s *silence) look(now time.Time, p state) time.Duration {
	switch {
	case !p.owes:
		s.since = time.Time{}
	case s.since.IsZero() || now.Add(-p.heard).After(s.since):
		s.since = now
	default:
		return now.Sub(s.since)
	}
	return 0
}
