package upstream

import (
	"net"
	"syscall"
	"testing"
)

// A connection within one machine is there before package net asks for it, so that nothing waits
// for the scheduler. Otherwise other clients' requests would overtake the first one of a new client.
func TestConnectFirst(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialer := net.Dialer{Control: func(network, addr string, conn syscall.RawConn) error {
		if err := connectFirst(network, addr, conn); err != nil {
			t.Error(err)
		}
		conn.Control(func(fd uintptr) {
			if _, err := syscall.Getpeername(int(fd)); err != nil {
				t.Errorf("package net finds a socket that is not connected: %v", err)
			}
		})
		return nil
	}}
	conn, err := dialer.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()

	for _, addr := range []string{"/run/redis.sock", "[fe80::1%lo]:6379"} {
		if err := connectFirst("", addr, nil); err != nil {
			t.Errorf("%s is not left to package net: %v", addr, err)
		}
	}
}
