package peer

import (
	"net"
	"sync"
	"syscall"
	"time"
)

// Guard checks whether the machine at the other end of a TCP connection still answers. A process
// there that is stopped, or does not read, is not lost: its kernel answers.
//
// While no data is on its way to the peer, keepalive finds the loss. While data is, keepalive
// pauses, and the kernel retries for 15 minutes. There the Guard finds the loss, on Linux only.
// (TCP_USER_TIMEOUT would do so too, but it also ends a connection whose peer acknowledges
// everything and has no room for more.)
//
// A nil Guard does nothing.
type Guard struct {
	conn   *net.TCPConn
	raw    syscall.RawConn
	within func() time.Duration
	lost   func()

	mu      sync.Mutex
	timer   *time.Timer   // guarded by mu; of the next check, nil while there is none
	set     time.Duration // guarded by mu; what keepalive is set to; 0 for the usual one
	silence silence       // guarded by mu
}

// NewGuard returns a Guard of conn, or nil if conn is not a TCP connection. It checks nothing
// before Start. At each check within returns for how long the peer's machine can stay silent; 0
// ends the checks until the next Start. lost is called, in its own goroutine, when the peer was
// silent for longer.
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

// minCheckEvery is the shortest time between two checks.
const minCheckEvery = time.Second

// Start starts the checks, if they have not started. The first one is a second later.
func (g *Guard) Start() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.timer == nil {
		g.timer = time.AfterFunc(minCheckEvery, g.check)
	}
}

// Stop ends the checks. They also end when conn is closed.
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

func (g *Guard) check() {
	if g.isLost() {
		g.lost()
	}
}

// isLost checks once and sets the timer for the next check. It reports whether the peer is lost.
func (g *Guard) isLost() (lost bool) {
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
	silent := g.silence.update(time.Now(), p)
	if lost = within > 0 && p.tries >= minTries && silent >= within; lost || err != nil ||
		within == 0 {
		g.timer, g.silence = nil, silence{}
		return lost
	}
	g.timer.Reset(max(minCheckEvery, within/20))
	return false
}

// KeepAlive returns settings that find a vanished machine within a time, in whole seconds, while no
// data is on its way to it. For 0 they are Go's default.
func KeepAlive(within time.Duration) net.KeepAliveConfig {
	if within == 0 {
		return net.KeepAliveConfig{Enable: true}
	}
	const probes = 3
	interval := max((within / 6).Truncate(time.Second), time.Second)
	return net.KeepAliveConfig{Enable: true, Idle: max(within-probes*interval, time.Second),
		Interval: interval, Count: probes}
}

// state is what the kernel knows of the other end of a connection.
type state struct {
	owes   bool          // it has not acknowledged all data
	tries  int           // how many retransmissions, or probes, had no answer
	silent time.Duration // how long nothing has arrived from it
}

// minTries must have failed: a single packet can get lost on its way.
const minTries = 2

// silence measures for how long a peer has answered nothing while it owed an acknowledgement. Its
// zero value is a peer that owes none.
type silence struct{ since time.Time }

// update returns for how long the silence has lasted.
func (s *silence) update(now time.Time, p state) time.Duration {
	switch {
	case !p.owes:
		s.since = time.Time{}
	case s.since.IsZero() || now.Add(-p.silent).After(s.since):
		s.since = now
	default:
		return now.Sub(s.since)
	}
	return 0
}
