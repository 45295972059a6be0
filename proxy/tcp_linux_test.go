package proxy

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// tcpPair is the two ends of a connection.
func tcpPair(t *testing.T) (server, client net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	if server, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server, client
}

// A client that comes by TCP is watched for the loss of its machine.
func TestClientsAreGuarded(t *testing.T) {
	raw, _ := tcpPair(t)
	if newClient(raw, raw).guard == nil {
		t.Error("nobody would notice that the machine of a client is lost")
	}
}

// A connection holds back what is written only while it is corked.
func TestCork(t *testing.T) {
	nc, _ := tcpPair(t)
	control, err := nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		cork(control, on)
		var corked int
		onSocket(control, func(fd uintptr) {
			corked, err = unix.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CORK)
		})
		if err != nil || (corked != 0) != on {
			t.Errorf("corked is %d, %v, want %v", corked, err, on)
		}
	}
}
