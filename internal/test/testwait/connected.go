package testwait

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
)

// Connected returns when the kernel has told the listener of a client's connection, which is on
// IPv4. The client is told before, with the packet that makes the kernel tell the listener. Where
// the kernel does not list its connections it returns at once.
func Connected(t testing.TB, client net.Conn) {
	t.Helper()
	words := func(addr net.Addr) string { // as in /proc/net/tcp
		a := addr.(*net.TCPAddr)
		return fmt.Sprintf("%08X:%04X", binary.NativeEndian.Uint32(a.IP.To4()), a.Port)
	}
	const established = " 01 "
	far := words(client.RemoteAddr()) + " " + words(client.LocalAddr()) + established
	Until(t, "the kernel has told the listener", func() bool {
		sockets, err := os.ReadFile("/proc/net/tcp")
		return os.IsNotExist(err) || strings.Contains(string(sockets), far)
	})
}
