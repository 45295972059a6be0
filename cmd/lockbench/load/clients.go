package load

import (
	"bytes"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Clients are connections to one server, for one run after the other. Not for concurrent use.
type Clients struct {
	addr  string
	epoll int
	conns []conn
}

// conn is one client's connection.
type conn struct {
	fd   int
	next int   // the request that is sent, or that will be sent next, by the schedule
	sent int64 // when its latency began; ns from the start of the run
	got  int   // bytes of the reply
	busy bool  // a reply is outstanding
}

// dialTimeout is for one connection and its first reply.
const dialTimeout = 10 * time.Second

// Open connects n clients to host:port, an IPv4 address, one after the other. Each sends a PING and
// waits for its reply, as clients do when they connect: so that the server has accepted all of
// them, and a proxy done for each what it does for a client.
func Open(addr string, n int) (*Clients, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil || !to.Addr().Is4() {
		return nil, fmt.Errorf("cannot connect to %q: want an IPv4 address and a port", addr)
	}
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("cannot make an epoll: %w", err)
	}
	c := &Clients{addr: addr, epoll: epoll}
	for len(c.conns) < n {
		fd, err := open(to)
		if err == nil {
			c.conns = append(c.conns, conn{fd: fd})
			// an index, for quick lookup
			event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(len(c.conns) - 1)}
			err = unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &event)
		}
		if err != nil {
			c.Close()
			return nil, fmt.Errorf("client %d of %d, to %s: %w", len(c.conns)+1, n, addr, err)
		}
	}
	return c, nil
}

func open(to netip.AddrPort) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("cannot open a socket: %w", err)
	}
	if err = greet(fd, to); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// greet connects, has a PING answered, and leaves the socket not blocking.
func greet(fd int, to netip.AddrPort) error {
	timeout := unix.NsecToTimeval(int64(dialTimeout))
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout)
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout)
	unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err := retry(func() error {
		return unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()})
	}); err != nil {
		return fmt.Errorf("cannot connect: %w", err)
	}
	if _, err := unix.Write(fd, []byte("*1\r\n$4\r\nPING\r\n")); err != nil {
		return fmt.Errorf("cannot send a PING: %w", err)
	}
	pong := []byte("+PONG\r\n")
	var buf [256]byte
	for got := 0; got < len(pong); {
		var n int
		err := retry(func() (err error) { n, err = unix.Read(fd, buf[got:]); return err })
		if err != nil || n == 0 {
			return fmt.Errorf("no reply to PING: %w", closedOr(err))
		}
		got += n
		if !bytes.HasPrefix(pong, buf[:min(got, len(buf))]) {
			return &WrongReply{Got: buf[:got], Want: pong}
		}
	}
	return unix.SetNonblock(fd, true)
}

// retry calls again what a signal of the runtime has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func closedOr(err error) error {
	if err == nil {
		return errClosed
	}
	return err
}

// Close closes all connections.
func (c *Clients) Close() {
	for i := range c.conns {
		unix.Close(c.conns[i].fd)
	}
	unix.Close(c.epoll)
	c.conns = nil
}
