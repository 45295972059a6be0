package testredis

import (
	"net"
	"sync"
	"testing"
)

// Link is a network path to a server that a test can break: what goes by it while it is held is lost when it is cut.
type Link struct {
	ln      net.Listener
	to      string
	running sync.WaitGroup

	mu    sync.Mutex
	free  *sync.Cond
	held  bool       // guarded by mu
	conns []net.Conn // guarded by mu
	ended bool       // guarded by mu
}

// StartLink makes a path to addr that lasts as long as the test.
func StartLink(t testing.TB, addr string) *Link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{ln: ln, to: addr}
	l.free = sync.NewCond(&l.mu)
	l.running.Go(l.accept) // ends with the test, which waits for it
	t.Cleanup(func() {
		ln.Close()
		l.mu.Lock()
		l.ended = true
		l.mu.Unlock()
		l.Cut()
		l.running.Wait()
	})
	return l
}

// Addr is the near end, host:port.
func (l *Link) Addr() string { return l.ln.Addr().String() }

// Hold stops the bytes to and fro, and keeps connections open; Release lets them go on.
func (l *Link) Hold() { l.set(true) }

// Release ends Hold.
func (l *Link) Release() { l.set(false) }

func (l *Link) set(held bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	l.free.Broadcast()
}

// Cut closes all connections; what was held is lost.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
	l.free.Broadcast()
}

func (l *Link) accept() {
	for {
		near, err := l.ln.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", l.to)
		if err != nil {
			near.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, near, far)
		if l.ended {
			near.Close()
			far.Close()
		}
		l.mu.Unlock()
		l.running.Go(func() { l.carry(far, near) }) // both end when either side closes, at the latest by Cut
		l.running.Go(func() { l.carry(near, far) })
	}
}

func (l *Link) carry(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.pass(to, buf[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// pass writes data once the link is not held. It returns false if the connection was cut.
func (l *Link) pass(to net.Conn, data []byte) bool {
	l.mu.Lock()
	for l.held && l.has(to) {
		l.free.Wait()
	}
	alive := l.has(to)
	l.mu.Unlock()
	if !alive {
		return false
	}
	_, err := to.Write(data)
	return err == nil
}

func (l *Link) has(c net.Conn) bool {
	for _, open := range l.conns {
		if open == c {
			return true
		}
	}
	return false
}
