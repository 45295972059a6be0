package proxy

import (
	"net"
	"syscall"
	"unsafe"
)

// cork holds back what is written to the client, for 200 ms at most, until it is taken back or the connection ends: then the end goes
// with the last of it in one packet, so that who has read that knows of the end.
func (s *session) cork(hold bool) {
	conn, ok := s.raw.(syscall.Conn)
	if !ok {
		return
	}
	control, err := conn.SyscallConn()
	if err != nil {
		return
	}
	value := 0
	if hold {
		value = 1
	}
	control.Control(func(fd uintptr) { // not on a Unix socket, which has no such thing
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, value)
	})
}

// sendQueue is how many bytes of what was written the peer's kernel has not acknowledged.
func sendQueue(raw net.Conn) (n int, err error) {
	if _, isTCP := raw.(*net.TCPConn); !isTCP {
		return 0, nil
	}
	control, err := raw.(syscall.Conn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var size int32
	var errno syscall.Errno
	err = control.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCOUTQ, uintptr(unsafe.Pointer(&size)))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return int(size), err
}
