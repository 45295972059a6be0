package proxy

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/peer"
	"lockproxy/internal/socket"
	"lockproxy/lockcmd/held"
)

// client is the connection of one client. Its session reads it, the Pipe writes it.
type client struct {
	net.Conn                         // raw, or what wrap put around it
	raw      net.Conn                // as it was accepted
	control  syscall.RawConn         // raw's socket; nil if it has none
	from     io.Reader               // reads the Conn's bytes
	socket   *socket.Socket          // raw's; nil if it has none
	direct   *socket.Socket          // writes the Conn's bytes; nil if a goroutine has to
	reg      *eventloop.Registration // lets an event loop read; nil if none does
	guard    *peer.Guard             // closes raw if its machine is lost; nil if it can't tell
	holder   held.Holder             // the client as a holder of locks
	meter
	phases
	lingering atomic.Bool // the session reads until the client closes: Close ends only the replies
}

// newClient returns the client at the other end of raw. conn is what wrap put around that.
func newClient(raw, conn net.Conn) *client {
	c := &client{Conn: conn, raw: raw, from: conn, socket: socket.New(raw)}
	c.direct = c.socket
	secure, isTLS := conn.(*socket.TLS)
	if isTLS {
		c.direct = socket.New(secure)
	}
	if conn, ok := raw.(syscall.Conn); ok {
		c.control, _ = conn.SyscallConn()
	}
	c.holder.Addr = clientAddr(raw.RemoteAddr())
	if c.direct != nil && (isTLS || conn == raw) { // conn can hold bytes behind a PROXY header
		c.from, c.socket = c.direct, c.direct
	}
	c.guard = peer.NewGuard(raw, c.silenceLimit, c.closeRaw)
	return c
}

// readsDirectly reports whether an event loop can read the client.
func (c *client) readsDirectly() bool { return c.direct != nil && c.from == io.Reader(c.direct) }

// wrapped reports whether there is TLS or a PROXY header. Then the kernel carries more bytes than
// are counted, and the Conn can hold some that are no longer in the socket.
func (c *client) wrapped() bool { return c.Conn != c.raw }

// Write gives the client replies.
func (c *client) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.Sent(n)
	return n, err
}

// Cork makes the next write leave in one packet with the end of the connection, if that follows at
// once. It has an effect only in a session that lingers.
func (c *client) Cork() {
	if c.lingering.Load() {
		cork(c.control, true)
	}
}

// corkIfDraining holds back what is written until the session ends, or uncork, if the server shuts
// down.
func (c *client) corkIfDraining() {
	if c.drains() {
		c.setPhase(corked)
		cork(c.control, true)
	}
}

// uncork lets go of what corkIfDraining holds back.
func (c *client) uncork() {
	c.setPhase(draining)
	cork(c.control, false)
}

// Close closes the connection, but only the direction to the client if the session lingers.
func (c *client) Close() error {
	if c.lingering.Load() {
		return c.closeWrite()
	}
	defer c.reg.Wake() // the reader sees the close
	return c.Conn.Close()
}

// lingerTimeout is how long a client may take to close its side. If the proxy closed first, the
// kernel would throw away answers on their way.
const lingerTimeout = 250 * time.Millisecond

// closeWrite ends what is sent to the client, which must then close too. Any goroutine can call it.
func (c *client) closeWrite() (err error) {
	if conn, ok := c.Conn.(*socket.TLS); ok {
		conn.CloseWrite() // its own goodbye
	}
	if conn, ok := c.raw.(interface{ CloseWrite() error }); ok {
		err = conn.CloseWrite()
	} else {
		err = c.raw.Close()
	}
	c.setPhase(closed)
	c.SetReadDeadline(time.Now().Add(lingerTimeout))
	return err
}

// closeRaw closes the connection at once. Any goroutine can call it.
func (c *client) closeRaw() {
	c.raw.Close() // TLS would wait for room for its goodbye
	c.reg.Wake()
}

// interruptRead makes a read that is under way, and each further one, time out at once.
func (c *client) interruptRead() { c.SetReadDeadline(time.Unix(1, 0)) }

// peek looks at what the kernel has for the connection, see socket.Socket.Peek.
func (c *client) peek() (n int, err error) {
	if c.socket == nil {
		return 0, syscall.EAGAIN
	}
	return c.socket.Peek()
}

// wasReset reports whether a reset has come behind the end of what the client sent.
func (c *client) wasReset() bool {
	pending := 0
	onSocket(c.control, func(fd uintptr) {
		pending, _ = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ERROR)
	})
	return pending != 0
}

// A client whose machine has vanished closes nothing. While it has a session lock, or waits for a
// lock, others wait for it. So its kernel has to answer the proxy's: within the shortest lease of
// its session locks, and these bounds.
const (
	minSilence = 10 * time.Second // a laptop can take this long to change its network
	maxSilence = 30 * time.Second
)

// silenceLimit is how long the client's machine may stay silent; 0 is as long as the kernel allows.
// The guard calls it.
func (c *client) silenceLimit() time.Duration {
	lease := c.holder.ShortestLease()
	switch {
	case lease > 0:
		return min(max(lease.Round(time.Second), minSilence), maxSilence)
	case c.is(locking):
		return maxSilence
	}
	return 0
}

// clientAddr is host:port, or "unix" for a client without an address.
func clientAddr(addr net.Addr) string {
	text := addr.String()
	if text == "" || strings.ContainsAny(text, " \n@/") {
		return "unix"
	}
	return text
}
