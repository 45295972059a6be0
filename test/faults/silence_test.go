//go:build faults && linux

package faults_test

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
)

// silence is how long the proxy's kernel lets the machine of a client be silent. The proxy sets it
// when it begins to check whether the machine answers. 0 is that it has no connection from there.
func silence(t *testing.T, c *proxytest.Conn) time.Duration {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	from := c.LocalAddr().(*net.TCPAddr)
	for _, file := range files {
		fd, _ := strconv.Atoi(file.Name())
		peer, err := syscall.Getpeername(fd)
		ip4, ok := peer.(*syscall.SockaddrInet4)
		if err != nil || !ok || ip4.Port != from.Port || !from.IP.Equal(ip4.Addr[:]) {
			continue
		}
		option := func(name int) int {
			value, _ := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, name)
			return value
		}
		seconds := option(unix.TCP_KEEPIDLE) + option(unix.TCP_KEEPINTVL)*option(unix.TCP_KEEPCNT)
		return time.Duration(seconds) * time.Second
	}
	return 0
}

// awaitSilence returns when the proxy lets the machine of a client be silent for so long.
func awaitSilence(t *testing.T, c *proxytest.Conn, want time.Duration) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("the proxy checks whether there is silence for %v", want),
		func() bool { return silence(t, c) == want })
}

// longestSilence is that of machines of clients with locks: see docs/guarantees.md.
const longestSilence = 30 * time.Second

// A machine may be silent for as long as the shortest timeout of its client's session locks, within
// bounds.
func TestFaultSilenceFollowsTheShortestTimeout(t *testing.T) {
	t.Parallel()
	_, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	c.Lock("long 600 SESSION")
	awaitSilence(t, c, longestSilence)
	c.Lock("medium 20 SESSION")
	awaitSilence(t, c, 20*time.Second)
	c.Lock("short 8 SESSION")
	awaitSilence(t, c, 10*time.Second)
}
