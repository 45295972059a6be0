//go:build linux

package proxytest

import (
	"errors"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"lockproxy/internal/test/testwait"
)

// AwaitRead returns when the proxy has read all that a client has sent it. The proxy is in this
// process, and not in virtual time.
func AwaitRead(t testing.TB, c *Conn) {
	t.Helper()
	control, err := c.Conn.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the proxy has read all", func() bool {
		unsent := -1
		control.Control(func(fd uintptr) { unsent, _ = unix.IoctlGetInt(int(fd), unix.TIOCOUTQ) })
		return unsent == 0 && farEndHasRead(t, c.LocalAddr().(*net.TCPAddr))
	})
}

// farEndHasRead looks for the far end of the connection from an address.
func farEndHasRead(t testing.TB, from *net.TCPAddr) bool {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		fd, _ := strconv.Atoi(file.Name())
		peer, err := syscall.Getpeername(fd)
		if ip4, ok := peer.(*syscall.SockaddrInet4); err == nil && ok && ip4.Port == from.Port &&
			from.IP.Equal(ip4.Addr[:]) {
			_, _, err := syscall.Recvfrom(fd, make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			return errors.Is(err, syscall.EAGAIN)
		}
	}
	return false
}
