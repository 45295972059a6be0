package testredis

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/wire"
)

// Link is a network path to a server that a test can break: what goes by it while it is held is
// lost when it is cut. A test can also have it say more than the server says.
type Link struct {
	ln         net.Listener
	delay      time.Duration // of all bytes, each way; not of connecting
	goroutines sync.WaitGroup

	mu     sync.Mutex
	to     string // guarded by mu
	free   *sync.Cond
	held   bool       // guarded by mu
	deaf   bool       // guarded by mu; what comes from addr is held
	waits  int        // guarded by mu; pieces that are held
	conns  []net.Conn // guarded by mu
	ended  bool       // guarded by mu
	insert Insertion  // guarded by mu
	within *tear      // guarded by mu
}

// tear ends a connection within a reply.
type tear struct {
	reply []byte
	at    int // so many bytes of it pass
	reset bool
	torn  chan struct{} // closed when it has happened
}

// Insertion returns what follows once so many replies have passed by a connection, 0 when it opens:
// now goes in one write with the last of them, later a moment after that.
type Insertion func(replies int) (now, later string)

// StartLink makes a path to addr that lasts as long as the test.
func StartLink(t testing.TB, addr string) *Link { return StartFarLink(t, addr, 0) }

// StartFarLink makes a path whose far end is away by a round trip. Like a network, and unlike
// faults/relay, it delays bytes without bounding how many are on their way.
func StartFarLink(t testing.TB, addr string, roundTrip time.Duration) *Link {
	t.Helper()
	return startLink(t, addr, roundTrip, ChooseTransport(t, Upstreams, TLS, Unix))
}

func startLink(t testing.TB, addr string, roundTrip time.Duration, by Transport) *Link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{ln: ln, to: addr, delay: roundTrip / 2}
	l.free = sync.NewCond(&l.mu)
	listeners := []net.Listener{ln}
	if other := l.listenAlsoBy(t, by); other != nil {
		listeners = append(listeners, other)
	}
	for _, ln := range listeners {
		l.goroutines.Go(func() { l.accept(ln) }) // ends with the test, which waits for it
	}
	t.Cleanup(func() {
		for _, ln := range listeners {
			ln.Close()
		}
		l.mu.Lock()
		l.ended = true
		l.mu.Unlock()
		l.Cut()
		l.goroutines.Wait()
	})
	return l
}

// listenAlsoBy has proxies reach the near end by a transport. The far end is TCP: what the link does to
// requests and replies it does to those, not to the records of TLS.
func (l *Link) listenAlsoBy(t testing.TB, by Transport) net.Listener {
	t.Helper()
	network, addr := "tcp", "127.0.0.1:0"
	if by == Unix {
		network, addr = "unix", SocketPath(t)
	}
	if by == TCP {
		return nil
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	reachBy(t, l.Addr(), way{by, ln.Addr().String()})
	if by == TLS {
		return tlsEnds{ln}
	}
	return ln
}

// tlsEnds are the near ends of connections with TLS.
type tlsEnds struct{ net.Listener }

func (l tlsEnds) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tlsEnd{tls.Server(raw, testtls.ServerConfig()), raw}, nil
}

// tlsEnd is one of them. Its Close ends TLS, too, as that of a Redis does that has not failed.
type tlsEnd struct {
	*tls.Conn
	raw net.Conn
}

func (c tlsEnd) Close() error {
	c.CloseWrite()
	return c.raw.Close()
}

// drop closes one end of a connection at once, by a reset if that is asked for and the transport has
// one.
func drop(c net.Conn, reset bool) {
	if end, ok := c.(tlsEnd); ok {
		c = end.raw
	}
	if tcp, ok := c.(*net.TCPConn); ok && reset {
		tcp.SetLinger(0)
	}
	c.Close()
}

// Addr is the near end, host:port.
func (l *Link) Addr() string { return l.ln.Addr().String() }

// Lead makes new connections lead to another server, as a name or a balancer does.
func (l *Link) Lead(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to = addr
}

// Hold stops the bytes to and fro, and keeps connections open; Release lets them go on.
func (l *Link) Hold() { l.set(true, true) }

// HoldReplies does the same with bytes from the far end only.
func (l *Link) HoldReplies() { l.set(false, true) }

// Holding reports whether something has come that is held.
func (l *Link) Holding() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waits > 0
}

// Release ends Hold.
func (l *Link) Release() { l.set(false, false) }

func (l *Link) set(held, deaf bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.deaf = held, deaf
	l.free.Broadcast()
}

// Insert has more sent to clients than the server sends, on connections opened from now on.
func (l *Link) Insert(what Insertion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.insert = what
}

// Cut closes all connections; what was held is lost.
func (l *Link) Cut() { l.end(false) }

// Reset ends all connections with a reset; what was held is lost.
func (l *Link) Reset() { l.end(true) }

func (l *Link) end(reset bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		drop(c, reset)
	}
	l.conns = nil
	l.free.Broadcast()
}

// Tear ends the connection that the far end sends reply on next, once so many bytes of that have
// passed. reply must come in one piece. What is returned closes when it has happened.
func (l *Link) Tear(reply string, at int, reset bool) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.within = &tear{reply: []byte(reply), at: at, reset: reset, torn: make(chan struct{})}
	return l.within.torn
}

// tornIn returns how much of data passes before the connection ends, and whether it does.
func (l *Link) tornIn(data []byte) (pass int, t *tear) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.within == nil {
		return len(data), nil
	}
	i := bytes.Index(data, l.within.reply)
	if i < 0 {
		return len(data), nil
	}
	t, l.within = l.within, nil
	return i + t.at, t
}

// forwardUntilTorn is forward for what comes from the far end.
func (l *Link) forwardUntilTorn(to, from net.Conn, data []byte) bool {
	pass, t := l.tornIn(data)
	open := pass == 0 || l.forwardUnless(&l.deaf, to, data[:pass])
	if t == nil {
		return open
	}
	defer close(t.torn)
	drop(to, t.reset)
	from.Close()
	return false
}

func (l *Link) accept(ln net.Listener) {
	for {
		near, err := ln.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		to := l.to
		l.mu.Unlock()
		far, err := net.Dial("tcp", to)
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
		p := &replies{insert: l.insert}
		l.mu.Unlock()
		// both end when either side closes, at the latest by Cut
		l.goroutines.Go(func() { l.carry(far, near, l.forward) })
		l.goroutines.Go(func() {
			if p.insert == nil { // what comes can be a replication stream: it is not looked at
				l.carry(near, far, func(to net.Conn, data []byte) bool {
					return l.forwardUntilTorn(to, far, data)
				})
				return
			}
			l.forwardReplies(p, near, nil)
			l.carry(near, far,
				func(to net.Conn, data []byte) bool { return l.forwardReplies(p, to, data) })
		})
	}
}

// piece is what was read from one end, and when it is to arrive at the other.
type piece struct {
	data []byte
	due  time.Time
}

// carry ends when either side closes. What was read before from's end still arrives.
func (l *Link) carry(to, from net.Conn, forward func(to net.Conn, data []byte) bool) {
	defer from.Close()
	pieces := make(chan piece, 1<<12)
	l.goroutines.Go(func() { // ends when pieces is closed
		defer to.Close()
		open := true
		for p := range pieces {
			time.Sleep(time.Until(p.due))
			if open = open && forward(to, p.data); !open {
				from.Close()
			}
		}
	})
	defer close(pieces)
	for {
		buf := make([]byte, 32<<10)
		n, err := from.Read(buf)
		if n > 0 {
			pieces <- piece{buf[:n], time.Now().Add(l.delay)}
		}
		if err != nil {
			return
		}
	}
}

// forward writes data once the link is not held. It returns false if the connection was cut.
func (l *Link) forward(to net.Conn, data []byte) bool { return l.forwardUnless(&l.held, to, data) }

func (l *Link) forwardUnless(held *bool, to net.Conn, data []byte) bool {
	l.mu.Lock()
	l.waits++
	for *held && l.has(to) {
		l.free.Wait()
	}
	l.waits--
	alive := l.has(to)
	l.mu.Unlock()
	if !alive {
		return false
	}
	_, err := to.Write(data)
	return err == nil
}

// replies are what a connection's server sends.
type replies struct {
	insert Insertion
	begun  []byte // what has gone on of a reply that is not whole
	passed int
}

// insertedLater is how much later the second part of an insertion goes than the first.
const insertedLater = 2 * time.Millisecond

// forwardReplies does as forward with bytes from the far end, and inserts what is to follow each
// reply; what follows none if there is no data.
func (l *Link) forwardReplies(p *replies, to net.Conn, data []byte) bool {
	var out []byte
	for begin := data == nil; begin || len(data) > 0; begin = false {
		if !begin {
			all := slices.Concat(p.begun, data)
			raw, err := wire.ReadReply(bufio.NewReader(bytes.NewReader(all)), wire.Either)
			if err != nil && err != io.EOF {
				return false
			}
			n := len(raw) - len(p.begun)
			out, data = append(out, data[:n]...), data[n:]
			if p.begun = all; err != nil {
				break
			}
			p.begun = nil
			p.passed++
		}
		now, later := p.insert(p.passed)
		out = append(out, now...)
		if later != "" {
			if !l.forwardUnless(&l.deaf, to, out) {
				return false
			}
			time.Sleep(insertedLater)
			out = []byte(later)
		}
	}
	return len(out) == 0 || l.forwardUnless(&l.deaf, to, out)
}

func (l *Link) has(c net.Conn) bool {
	for _, open := range l.conns {
		if open == c {
			return true
		}
	}
	return false
}
