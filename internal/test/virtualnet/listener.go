package virtualnet

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// listeners are those that accept, by address.
var listeners sync.Map

// prefix is for measuring networks; no machine has such an address in the Internet (RFC 2544).
var prefix = netip.MustParsePrefix("198.18.0.0/16")

// given counts the addresses that were given, of listeners and of connections.
var given atomic.Uint32

// nextAddr is an address that nothing else has.
func nextAddr() *net.TCPAddr {
	n := given.Add(1)
	ip := prefix.Addr().As4()
	return &net.TCPAddr{IP: net.IPv4(ip[0], ip[1], byte(n>>23), byte(n>>15)),
		Port: int(1<<15 | n&(1<<15-1))}
}

// Listener accepts connections.
type Listener struct {
	addr *net.TCPAddr

	mu      sync.Mutex
	changed *sync.Cond
	waiting []*Conn  // guarded by mu; not yet accepted
	closed  bool     // guarded by mu
	timeout deadline // guarded by mu
}

// Listen listens at an address of its own.
func Listen() *Listener { return ListenAt(nextAddr()) }

// ListenAt listens at the address of a Listener that is closed.
func ListenAt(addr *net.TCPAddr) *Listener {
	l := &Listener{addr: addr}
	l.changed = sync.NewCond(&l.mu)
	listeners.Store(addr.String(), l)
	return l
}

// Has reports whether addr, host:port, is of this network.
func Has(addr string) bool {
	to, err := netip.ParseAddrPort(addr)
	return err == nil && prefix.Contains(to.Addr())
}

// Dial connects to the Listener at addr.
func Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect",
		syscall.ECONNREFUSED)}
	known, ok := listeners.Load(addr)
	if !ok {
		return nil, refused
	}
	l := known.(*Listener)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, refused
	}
	near, far := pair(nextAddr(), l.addr)
	l.waiting = append(l.waiting, far)
	l.changed.Broadcast()
	return near, nil
}

// Accept returns the next connection.
func (l *Listener) Accept() (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		var err error
		switch {
		case l.closed:
			err = net.ErrClosed
		case len(l.waiting) > 0:
			c := l.waiting[0]
			l.waiting = l.waiting[1:]
			return c, nil
		case l.timeout.passedLocked():
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: err}
		}
		l.changed.Wait()
	}
}

// SetDeadline is when Accept gives up.
func (l *Listener) SetDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timeout.setLocked(t, l.changed)
	return nil
}

// Addr is the address to Dial.
func (l *Listener) Addr() net.Addr { return l.addr }

// Close resets the connections that were not accepted, and accepts no more.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return net.ErrClosed
	}
	l.closed = true
	l.timeout.setLocked(time.Time{}, l.changed)
	listeners.CompareAndDelete(l.addr.String(), l)
	for _, c := range l.waiting {
		c.SetLinger(0)
		c.Close()
	}
	return nil
}
