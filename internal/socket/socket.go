package socket

import (
	"io"
	"net"
	"os"
	"syscall"
)

// Socket is the socket of a net.Conn. One goroutine can read while another writes, but only one can
// Write or TryWrite. It must not be nil.
type Socket struct {
	raw                             syscall.RawConn
	secure                          *TLS // reads and writes; nil without TLS
	reads, tryWrites, writes, peeks half
	first                           [1]byte          // for Peek
	peek                            func(fd uintptr) // Peek's call
	tryRead                         func(fd uintptr) // TryRead's call
}

// half is a call of one kind that is under way. Its callback is made once, so that a call
// allocates nothing.
type half struct {
	buf   []byte
	n     int
	err   error
	call  func(fd uintptr) (done bool)
	calls uint32 // so far; it overflows
}

// Above is a connection that another one carries without a change.
type Above interface{ Below() net.Conn }

// New returns the socket of conn, or nil if conn is not a *net.TCPConn or *net.UnixConn, TLS over
// one of these, or Above one.
func New(conn net.Conn) *Socket {
	switch c := conn.(type) {
	case *net.TCPConn, *net.UnixConn:
	case *TLS:
		s := New(c.records.Conn)
		if s != nil {
			s.secure = c
		}
		return s
	case Above:
		return New(c.Below())
	default:
		return nil
	}
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{raw: raw}
	s.reads.call = func(fd uintptr) bool {
		s.reads.n, s.reads.err = again(s.reads.read, fd, s.reads.buf)
		return s.reads.err != syscall.EAGAIN
	}
	s.tryRead = func(fd uintptr) { s.reads.n, s.reads.err = again(s.reads.read, fd, s.reads.buf) }
	s.tryWrites.call = func(fd uintptr) bool {
		s.tryWrites.n, s.tryWrites.err = again(s.tryWrites.write, fd, s.tryWrites.buf)
		return true
	}
	s.peek = func(fd uintptr) { s.peeks.n, s.peeks.err = again(peek, fd, s.first[:]) }
	s.writes.call = func(fd uintptr) bool {
		for s.writes.err == nil && s.writes.n < len(s.writes.buf) {
			n, err := again(s.writes.write, fd, s.writes.buf[s.writes.n:])
			if err == syscall.EAGAIN {
				return false
			}
			s.writes.n, s.writes.err = s.writes.n+max(n, 0), err // n is -1 with an error
		}
		return true
	}
	return s
}

// again repeats a call while a signal interrupts it.
func again(call func(uintptr, []byte) (int, error), fd uintptr, b []byte) (n int, err error) {
	for {
		if n, err = call(fd, b); err != syscall.EINTR {
			return n, err
		}
	}
}

// Read is net.Conn's. b must not be empty.
func (s *Socket) Read(b []byte) (n int, err error) {
	if s.secure != nil {
		return s.secure.Read(b)
	}
	s.reads.buf = b
	return s.reads.result(s.raw.Read(s.reads.call))
}

// TryRead is Read without waiting: if there is nothing to read, the error is syscall.EAGAIN.
// Deadlines do not apply to it. b must not be empty. With TLS there can be bytes and an error: the
// kernel does not tell of an end that came in the same packet.
func (s *Socket) TryRead(b []byte) (n int, err error) {
	if s.secure != nil {
		return s.secure.tryRead(b)
	}
	s.reads.buf = b
	return s.reads.result(s.raw.Control(s.tryRead))
}

// result ends a read. err says that it was not tried.
func (h *half) result(err error) (int, error) {
	h.buf = nil
	switch {
	case err != nil:
		return 0, err
	case h.err == syscall.EAGAIN:
		return 0, syscall.EAGAIN
	case h.err != nil:
		return 0, os.NewSyscallError("read", h.err)
	case h.n == 0:
		return 0, io.EOF
	}
	return h.n, nil
}

// Raw returns the connection for package syscall.
func (s *Socket) Raw() syscall.RawConn { return s.raw }

// Peek reports whether there is something to read in the socket, without reading or waiting. With
// TLS that need not be for the caller. It can be called while another goroutine reads, but not
// twice at the same time. If the peer has closed and
// everything has been read, n is 0 and err nil. If the peer can still send, err is syscall.EAGAIN.
func (s *Socket) Peek() (n int, err error) {
	if err := s.raw.Control(s.peek); err != nil {
		return 0, err
	}
	return s.peeks.n, s.peeks.err
}

// TryWrite writes as much of b as the kernel takes at once, which can be nothing. b must not be
// empty. With TLS, the next TryWrite or Write must begin with what was not written.
func (s *Socket) TryWrite(b []byte) (n int, err error) {
	if s.secure != nil {
		return s.secure.tryWrite(b)
	}
	s.tryWrites.buf = b
	err = s.raw.Write(s.tryWrites.call)
	s.tryWrites.buf = nil
	switch {
	case err != nil:
		return 0, err
	case s.tryWrites.err == syscall.EAGAIN:
		return 0, nil
	case s.tryWrites.err != nil:
		return 0, os.NewSyscallError("write", s.tryWrites.err)
	}
	return s.tryWrites.n, nil
}

// Write is net.Conn's: it waits until the kernel has taken all of b.
func (s *Socket) Write(b []byte) (n int, err error) {
	if s.secure != nil {
		return s.secure.Write(b)
	}
	s.writes.buf, s.writes.n, s.writes.err = b, 0, nil
	err = s.raw.Write(s.writes.call)
	s.writes.buf = nil
	if err == nil && s.writes.err != nil {
		err = os.NewSyscallError("write", s.writes.err)
	}
	return s.writes.n, err
}
