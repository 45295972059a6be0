package proxytest

import (
	"net"
	"syscall"
	"testing"
)

// SendUrgent sends b, whose last byte is urgent.
func SendUrgent(t *testing.T, nc net.Conn, b []byte) {
	t.Helper()
	raw, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = syscall.Sendto(int(fd), b, syscall.MSG_OOB, nil) })
	if err != nil {
		t.Fatal(err)
	}
}
