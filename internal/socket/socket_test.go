package socket

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/testwait"
)

// pair is two ends of a connection of the network, which can be tls as well.
func pair(t testing.TB, network string) (near, far net.Conn) {
	t.Helper()
	if network == "tls" {
		near, far = pair(t, "tcp")
		server, client := Server(near, testtls.ServerConfig()), tls.Client(far, clientConfig())
		shake(t, server, client)
		return server, client
	}
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if far, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if near, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

func clientConfig() *tls.Config {
	return &tls.Config{RootCAs: testtls.Common().Pool, ServerName: "localhost"}
}

func shake(t testing.TB, server, client interface{ Handshake() error }) {
	t.Helper()
	shaken := make(chan error)
	go func() { shaken <- client.Handshake() }() // ends with the handshake
	if err := errors.Join(server.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
}

// Whole streams go both ways at once, through buffers of the kernel's that are far smaller, and end
// with EOF.
func TestStreams(t *testing.T) {
	for _, network := range []string{"tcp", "unix", "tls"} {
		near, far := pair(t, network)
		s := New(near)
		data := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
		go func() { // ends when near has read all, which is waited for below
			far.Write(data)
			far.(interface{ CloseWrite() error }).CloseWrite()
		}()
		echoed := make(chan []byte)
		go func() { // ends at EOF
			got, _ := io.ReadAll(far)
			echoed <- got
		}()
		got, err := io.ReadAll(struct{ io.Reader }{s})
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%s: read %d bytes, %v", network, len(got), err)
		}
		if n, err := s.Write(data); n != len(data) || err != nil {
			t.Fatalf("%s: wrote %d bytes, %v", network, n, err)
		}
		near.Close()
		if got := <-echoed; !bytes.Equal(got, data) {
			t.Fatalf("%s: the peer got %d bytes", network, len(got))
		}
	}
}

// TryWrite takes what fits, then nothing, and goes on when the peer has read.
func TestTryWriteNeverWaits(t *testing.T) {
	for _, network := range []string{"tcp", "tls"} {
		near, far := pair(t, network)
		s := New(near)
		sent, b := 0, make([]byte, 64<<10)
		for {
			n, err := s.TryWrite(b)
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				break
			}
			sent += n
		}
		if _, err := io.CopyN(io.Discard, far, int64(sent)); err != nil {
			t.Fatal(err)
		}
		testwait.Until(t, "something is taken, since the peer has read all", func() bool {
			n, err := s.TryWrite(b)
			return n > 0 && err == nil
		})
	}
}

// Reads and writes that wait and that don't can follow each other in any way, and lose nothing.
func TestAnyCallsAfterEachOther(t *testing.T) {
	for _, network := range []string{"tcp", "unix", "tls"} {
		near, far := pair(t, network)
		s, rnd := New(near), rand.New(rand.NewPCG(1, 2))
		data := make([]byte, 4<<20)
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		sizes := rand.New(rand.NewPCG(3, 4))
		go func() { // ends when near has read all, which is waited for below
			for rest := data; len(rest) > 0; {
				n := min(1+sizes.IntN(1<<sizes.IntN(18)), len(rest))
				far.Write(rest[:n])
				rest = rest[n:]
			}
		}()
		got := make([]byte, 0, len(data))
		for len(got) < len(data) {
			room := got[len(got):min(cap(got), len(got)+1+rnd.IntN(1<<rnd.IntN(18)))]
			n, err := s.TryRead(room)
			if err == syscall.EAGAIN {
				n, err = s.Read(room)
			}
			if err != nil {
				t.Fatal(err)
			}
			got = got[:len(got)+n]
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("%s: what was read is not what was written", network)
		}

		read := make(chan []byte)
		go func() { // ends at EOF
			got, _ := io.ReadAll(far)
			read <- got
		}()
		for rest := data; len(rest) > 0; {
			write := s.TryWrite
			if rnd.IntN(4) == 0 {
				write = s.Write
			}
			n, err := write(rest)
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		near.Close()
		if got := <-read; !bytes.Equal(got, data) {
			t.Fatalf("%s: the peer has not read what was written", network)
		}
	}
}

// Deadlines, closing and resets are told as net.Conn tells them.
func TestErrors(t *testing.T) {
	for _, network := range []string{"tcp", "tls"} {
		t.Run(network, func(t *testing.T) { errorsOf(t, network) })
	}
}

func errorsOf(t *testing.T, network string) {
	near, far := pair(t, network)
	s := New(near)
	b := make([]byte, 16)
	near.SetReadDeadline(time.Unix(1, 0))
	if _, err := s.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	near.SetReadDeadline(time.Time{})
	raw, isTLS := far.(interface{ NetConn() net.Conn })
	if isTLS {
		far = raw.NetConn()
	}
	far.(*net.TCPConn).SetLinger(0)
	far.Close()
	if _, err := s.Read(b); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after a reset: %v", err)
	}
	if _, err := s.Write(b); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write after a reset: %v", err)
	}
	if _, err := s.TryWrite(b); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write without waiting after a reset: %v", err)
	}
	near.Close()
	if _, err := s.Read(b); !errors.Is(err, net.ErrClosed) && !isTLS { // TLS tells the first error
		t.Errorf("after Close: %v", err)
	}
	if _, err := s.TryWrite(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after Close: %v", err)
	}
}

// The end that a peer says in TLS ends the reading, and an idle connection is told from one that
// has something to read or has ended.
func TestIdleAndEndOfTLS(t *testing.T) {
	near, far := pair(t, "tcp")
	secure, peer := Server(near, testtls.ServerConfig()), Client(far, clientConfig())
	shake(t, secure, peer)
	s := New(secure)
	if _, unread, open := secure.Next(); unread || !open {
		t.Error("a connection on which nothing has come is not idle")
	}
	peer.Write([]byte("ab"))
	near.SetReadDeadline(testwait.Deadline())
	b := make([]byte, 1)
	if n, err := s.Read(b); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	for range 2 { // it is looked at, and not taken
		if next, unread, open := secure.Next(); next != 'b' || !unread || !open {
			t.Errorf("a byte that was not read: %q, %v, %v", next, unread, open)
		}
	}
	peer.Conn.Write([]byte("c")) // it goes together with the end
	peer.CloseWrite()
	testwait.Until(t, "both have come", func() bool { n, _ := s.Peek(); return n > 0 })
	if n, err := s.TryRead(make([]byte, 3)); n != 2 || err != io.EOF {
		t.Errorf("two bytes and the end: %d, %v", n, err)
	}
	if _, err := s.Read(b); err != io.EOF {
		t.Errorf("after the end: %v", err)
	}
	if _, err := s.TryRead(b); err != io.EOF {
		t.Errorf("after the end, without waiting: %v", err)
	}
	if _, unread, open := secure.Next(); unread || open {
		t.Error("a connection that has ended is idle")
	}
}

// What TLS says by itself while nothing else is written, such as that it has a new key whenever the
// peer asks for one, is not gathered without end: the connection fails instead.
func TestTLSGathersLittle(t *testing.T) {
	near, far := pair(t, "tcp")
	secure, peer := Server(near, testtls.ServerConfig()), Client(far, clientConfig())
	shake(t, secure, peer)
	said, size := make([]byte, 32), 0
	for size <= 4*maxRecord {
		if _, err := secure.Conn.Write(said); err != nil { // as tls.Conn does when it reads
			break
		}
		size += len(said)
	}
	if size == 0 || size > maxRecord {
		t.Errorf("it has gathered %d bytes", size)
	}
	if _, err := New(secure).Write(said); !errors.Is(err, errUnsent) {
		t.Errorf("written after that: %v", err)
	}
}

func TestPeek(t *testing.T) {
	near, far := pair(t, "tcp")
	s := New(near)
	if n, err := s.Peek(); n != 0 || err != syscall.EAGAIN {
		t.Errorf("nothing has come: %d, %v", n, err)
	}
	far.Write([]byte("ab"))
	far.Close()
	b := make([]byte, 2)
	near.SetReadDeadline(testwait.Deadline())
	for range b {
		if _, err := io.ReadFull(struct{ io.Reader }{s}, b[:1]); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Peek(); b[0] == 'a' && (n != 1 || err != nil) {
			t.Errorf("one byte is left: %d, %v", n, err)
		}
	}
	if _, err := s.Read(b); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if n, err := s.Peek(); n != 0 || err != nil {
		t.Errorf("the peer has closed: %d, %v", n, err)
	}
	near.Close()
	if _, err := s.Peek(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Close ends a Read and a Write that wait.
func TestCloseEndsWaiting(t *testing.T) {
	near, _ := pair(t, "tcp")
	s := New(near)
	ended := make(chan error, 2)
	go func() { _, err := s.Read(make([]byte, 1)); ended <- err }()       // ended by Close
	go func() { _, err := s.Write(make([]byte, 64<<20)); ended <- err }() // ended by Close
	testwait.Blocked(t, "socket.(*Socket).Read")
	testwait.Blocked(t, "socket.(*Socket).Write")
	near.Close()
	for range 2 {
		if err := testwait.For(t, "the end of waiting", ended); !errors.Is(err, net.ErrClosed) {
			t.Errorf("ended with %v", err)
		}
	}
}

// A connection that is more than a socket has no Socket.
func TestNone(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	near, _ := pair(t, "tcp")
	for _, conn := range []net.Conn{a, tls.Client(near, &tls.Config{}), struct{ net.Conn }{near}} {
		if New(conn) != nil {
			t.Errorf("%T has a socket", conn)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	near, far := pair(t, "tcp")
	s := New(near)
	b := make([]byte, 16)
	if n := testing.AllocsPerRun(100, func() {
		far.Write(b)
		s.Read(b)
		s.Write(b)
		s.TryWrite(b)
		s.Peek()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
