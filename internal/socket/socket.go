// Package socket reads and writes a plain TCP or Unix socket more cheaply than its net.Conn does.
//
// Go's scheduler is told of each system call that a net.Conn makes, so that it can run something else meanwhile, and watches those that
// last. A call on a socket that never blocks is over before that is of use; for a relay, which does little else, the telling and the
// watching are a tenth of its work. So most calls are made here without (on Linux; elsewhere they are the usual ones).
//
// Waiting for the socket, deadlines and Close are net.Conn's own: a Socket may be mixed with its net.Conn.
package socket

import (
	"io"
	"net"
	"os"
	"syscall"
)

// Socket is the socket of a net.Conn. One goroutine may read while another writes, but only one may Write or TryWrite.
// Nil is not usable.
type Socket struct {
	raw                syscall.RawConn
	in, out, all, look half
	first              [1]byte          // for look
	see                func(fd uintptr) // look's call, for Control
	take               func(fd uintptr) // in's call that doesn't wait, for Control
}

// half is one direction's call under way. The callbacks are made once, so that a call allocates nothing.
type half struct {
	buf   []byte
	n     int
	err   error
	call  func(fd uintptr) (done bool)
	calls uint32 // so far, and round again
}

// New returns the socket of conn, or nil if what conn carries isn't what its socket does (TLS), or it has none.
func New(conn net.Conn) *Socket {
	var sc syscall.Conn
	switch c := conn.(type) {
	case *net.TCPConn:
		sc = c
	case *net.UnixConn:
		sc = c
	default:
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{raw: raw}
	s.in.call = func(fd uintptr) bool {
		s.in.n, s.in.err = again(s.in.read, fd, s.in.buf)
		return s.in.err != syscall.EAGAIN
	}
	s.take = func(fd uintptr) { s.in.n, s.in.err = again(s.in.read, fd, s.in.buf) }
	s.out.call = func(fd uintptr) bool {
		s.out.n, s.out.err = again(s.out.write, fd, s.out.buf)
		return true
	}
	s.see = func(fd uintptr) { s.look.n, s.look.err = again(s.look.peek, fd, s.first[:]) }
	s.all.call = func(fd uintptr) bool {
		for s.all.err == nil && s.all.n < len(s.all.buf) {
			n, err := again(s.all.write, fd, s.all.buf[s.all.n:])
			if err == syscall.EAGAIN {
				return false
			}
			s.all.n, s.all.err = s.all.n+n, err
		}
		return true
	}
	return s
}

// again repeats a call that a signal has interrupted.
func again(call func(uintptr, []byte) (int, error), fd uintptr, b []byte) (n int, err error) {
	for {
		if n, err = call(fd, b); err != syscall.EINTR {
			return n, err
		}
	}
}

// Read waits until something has come and takes it, as net.Conn's does. b must not be empty.
func (s *Socket) Read(b []byte) (n int, err error) {
	s.in.buf = b
	err = s.raw.Read(s.in.call)
	s.in.buf = nil
	switch {
	case err != nil:
		return 0, err
	case s.in.err != nil:
		return 0, os.NewSyscallError("read", s.in.err)
	case s.in.n == 0:
		return 0, io.EOF
	}
	return s.in.n, nil
}

// TryRead takes what has come, and doesn't wait for more: the error is syscall.EAGAIN if nothing has. It knows no deadline. It may be called
// only by who might Read. b must not be empty.
func (s *Socket) TryRead(b []byte) (n int, err error) {
	s.in.buf = b
	err = s.raw.Control(s.take)
	s.in.buf = nil
	switch {
	case err != nil:
		return 0, err
	case s.in.err == syscall.EAGAIN:
		return 0, syscall.EAGAIN
	case s.in.err != nil:
		return 0, os.NewSyscallError("read", s.in.err)
	case s.in.n == 0:
		return 0, io.EOF
	}
	return s.in.n, nil
}

// Raw is the connection as package syscall knows it.
func (s *Socket) Raw() syscall.RawConn { return s.raw }

// Peek looks at what has come, takes nothing and waits for nothing: it may be called while another goroutine reads, but by one at a time.
// n is 0 without an error if the peer has closed and all it sent has been read; the error is syscall.EAGAIN if it may send more.
func (s *Socket) Peek() (n int, err error) {
	if err := s.raw.Control(s.see); err != nil {
		return 0, err
	}
	return s.look.n, s.look.err
}

// TryWrite gives the kernel as much of b as it takes now, which may be nothing: it never waits for the peer. b must not be empty.
func (s *Socket) TryWrite(b []byte) (n int, err error) {
	s.out.buf = b
	err = s.raw.Write(s.out.call)
	s.out.buf = nil
	switch {
	case err != nil:
		return 0, err
	case s.out.err == syscall.EAGAIN:
		return 0, nil
	case s.out.err != nil:
		return 0, os.NewSyscallError("write", s.out.err)
	}
	return s.out.n, nil
}

// Write gives the kernel all of b, and waits for the peer to take it where it must, as net.Conn's does.
func (s *Socket) Write(b []byte) (n int, err error) {
	s.all.buf, s.all.n, s.all.err = b, 0, nil
	err = s.raw.Write(s.all.call)
	s.all.buf = nil
	if err == nil && s.all.err != nil {
		err = os.NewSyscallError("write", s.all.err)
	}
	return s.all.n, err
}
