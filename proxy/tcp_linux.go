package proxy

import (
	"errors"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cork holds back what is written to the client, for 200 ms at most, until it is taken back or the connection ends: then the end goes
// with the last of it in one packet, so that who has read that knows of the end.
func (s *session) cork(hold bool) {
	value := 0
	if hold {
		value = 1
	}
	onSocket(s.raw, func(fd uintptr) { // not on a Unix socket, which has no such thing
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, value)
	})
}

// sendQueue is how many bytes of what was written the peer's kernel has not acknowledged.
func sendQueue(raw net.Conn) (n int, err error) {
	if _, isTCP := raw.(*net.TCPConn); !isTCP {
		return 0, nil
	}
	return queued(raw, syscall.TIOCOUTQ)
}

// receiveQueue is how many bytes have come from the peer and were not read.
func receiveQueue(raw net.Conn) int {
	n, _ := queued(raw, syscall.TIOCINQ)
	return n
}

// queued asks the kernel for the length of a socket's queue.
func queued(raw net.Conn, which uintptr) (n int, err error) {
	var size int32
	var errno syscall.Errno
	err = onSocket(raw, func(fd uintptr) {
		_, _, errno = syscall.RawSyscall(syscall.SYS_IOCTL, fd, which, uintptr(unsafe.Pointer(&size)))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return int(size), err
}

// hungUp reports whether the peer has closed its side, also if what it sent before has not all been read.
func hungUp(raw net.Conn) bool {
	look := []unix.PollFd{{Events: unix.POLLRDHUP}}
	err := onSocket(raw, func(fd uintptr) {
		look[0].Fd = int32(fd)
		unix.Poll(look, 0)
	})
	return look[0].Revents != 0 || errors.Is(err, net.ErrClosed)
}

// onSocket has call run on a connection's socket.
func onSocket(raw net.Conn, call func(fd uintptr)) error {
	conn, ok := raw.(syscall.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	control, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	return control.Control(call)
}
