package proxy

import "syscall"

// cork holds back what is written to the client, for 200 ms at most, until it is taken back or the connection ends: then the end goes
// with the last of it in one packet, so that who has read that knows of the end.
func (s *session) cork(hold bool) {
	s.corked = hold
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
