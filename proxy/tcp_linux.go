package proxy

import (
	"errors"
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cork holds back what is written, for 200 ms at most, until cork(control, false) or the end of the
// connection. The end then leaves in one packet with the last bytes, so a peer that has read them
// knows of the end. A Unix socket has no cork.
func cork(control syscall.RawConn, on bool) {
	onSocket(control, func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK, btoi(on))
	})
}

// sendQueue is how many written bytes the peer's kernel has not acknowledged.
func sendQueue(control syscall.RawConn) (n int, err error) {
	return queued(control, syscall.TIOCOUTQ)
}

// receiveQueue is how many bytes have come from the peer and were not read.
func receiveQueue(control syscall.RawConn) int {
	n, _ := queued(control, syscall.TIOCINQ)
	return n
}

// queued asks the kernel for the length of a socket's queue.
func queued(control syscall.RawConn, which uintptr) (n int, err error) {
	var size int32
	var errno syscall.Errno
	err = onSocket(control, func(fd uintptr) {
		at := uintptr(unsafe.Pointer(&size))
		_, _, errno = syscall.RawSyscall(syscall.SYS_IOCTL, fd, which, at)
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return int(size), err
}

// readable reports whether something can be read, or accepted, at once.
func readable(control syscall.RawConn) bool {
	fds := []unix.PollFd{{Events: unix.POLLIN}}
	onSocket(control, func(fd uintptr) {
		fds[0].Fd = int32(fd)
		unix.Poll(fds, 0)
	})
	return fds[0].Revents&unix.POLLIN != 0
}

// hungUp reports whether the peer has closed its side, even if earlier bytes are unread.
func hungUp(control syscall.RawConn) bool {
	fds := []unix.PollFd{{Events: unix.POLLRDHUP}}
	err := onSocket(control, func(fd uintptr) {
		fds[0].Fd = int32(fd)
		unix.Poll(fds, 0)
	})
	return fds[0].Revents != 0 || errors.Is(err, net.ErrClosed)
}
