package proxytest

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"lockproxy/internal/testwait"
)

// AwaitRead returns when the proxy has read all that a client has sent it. Both are in this network
// namespace, and not in virtual time.
func AwaitRead(t testing.TB, c *Conn) {
	t.Helper()
	near, far := kernelAddr(c.LocalAddr()), kernelAddr(c.RemoteAddr())
	testwait.Until(t, "the proxy has read all", func() bool {
		sockets, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		sent, read := false, false
		for line := range strings.Lines(string(sockets)) {
			// number, local address, remote address, state, bytes unsent:unread, …
			fields := strings.Fields(line)
			if len(fields) < 5 {
				continue
			}
			unsent, unread, _ := strings.Cut(fields[4], ":")
			switch {
			case fields[1] == near && fields[2] == far:
				sent = unsent == "00000000"
			case fields[1] == far && fields[2] == near:
				read = unread == "00000000"
			}
		}
		return sent && read
	})
}

// kernelAddr is an IPv4 address as /proc/net/tcp has it.
func kernelAddr(addr net.Addr) string {
	tcp := addr.(*net.TCPAddr)
	ip := tcp.IP.To4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], tcp.Port)
}
