package socket

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"lockproxy/internal/test/testwait"
)

// pair is two ends of a connection of the network.
func pair(t testing.TB, network string) (near, far net.Conn) {
	t.Helper()
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

// Whole streams go both ways at once, through buffers of the kernel's that are far smaller, and end
// with EOF.
func TestStreams(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
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
	near, far := pair(t, "tcp")
	s := New(near)
	sent := 0
	for {
		n, err := s.TryWrite(make([]byte, 64<<10))
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
		n, err := s.TryWrite([]byte("x"))
		return n == 1 && err == nil
	})
}

// Deadlines, closing and resets are told as net.Conn tells them.
func TestErrors(t *testing.T) {
	near, far := pair(t, "tcp")
	s := New(near)
	b := make([]byte, 16)
	near.SetReadDeadline(time.Unix(1, 0))
	if _, err := s.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	near.SetReadDeadline(time.Time{})
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
	if _, err := s.Read(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := s.TryWrite(b); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after Close: %v", err)
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
