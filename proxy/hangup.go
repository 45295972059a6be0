package proxy

import (
	"errors"
	"net"
	"syscall"
)

// Gone reports whether the client is known to have closed at this moment: whether the kernel has its FIN or reset, and nothing
// sent before it is left to read. It takes nothing from the connection.
func (s *session) Gone() bool {
	if s.readErr != nil {
		return true
	}
	if s.watch != nil {
		select {
		case <-s.watch.gone:
			return true
		default:
		}
	}
	n, err := peek(s.raw)
	return n == 0 && err == nil || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

// broken reports whether the connection ended with a reset: the client closed it without reading all that it had been sent.
// The reset may come behind the end of what the client sent.
func (s *session) broken() bool {
	if errors.Is(s.readErr, syscall.ECONNRESET) || errors.Is(s.readErr, syscall.EPIPE) {
		return true
	}
	conn, ok := s.raw.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	pending := 0
	control.Control(func(fd uintptr) { pending, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR) })
	return pending != 0
}
