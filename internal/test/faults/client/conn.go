//go:build linux

package client

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"lockproxy/internal/test/wire"
)

// Conn is a connection to a proxy. Only one goroutine uses it at a time.
type Conn struct {
	nc   net.Conn
	in   *bufio.Reader
	Push func(elems []string) // called with each push; nil ignores them
}

// Dial connects.
func Dial(addr string) (*Conn, error) {
	nc, err := net.DialTimeout("tcp", addr, 3*time.Second)
	if err != nil {
		return nil, err
	}
	return On(nc), nil
}

// On returns a client on an open connection.
func On(nc net.Conn) *Conn { return &Conn{nc: nc, in: bufio.NewReaderSize(nc, 4<<10)} }

// Close closes the connection, at any point of a conversation.
func (c *Conn) Close() { c.nc.Close() }

// Reset closes the connection with a reset, as the kernel
// does for a process that died with bytes unread.
func (c *Conn) Reset() {
	c.nc.(*net.TCPConn).SetLinger(0)
	c.nc.Close()
}

// Die closes the connection as the end of a process does, and returns the reply if it had arrived
// whole. Later bytes are refused with a reset. The error says that there was no whole reply.
func (c *Conn) Die() (Reply, error) {
	control, err := c.nc.(*net.TCPConn).SyscallConn()
	if err != nil {
		return Reply{}, err
	}
	control.Control(func(fd uintptr) { syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	return c.Receive(time.Second)
}

// Send sends a command.
func (c *Conn) Send(args ...string) error { return c.Write(wire.Append(nil, args...)) }

// Write sends bytes.
func (c *Conn) Write(raw []byte) error {
	c.nc.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, err := c.nc.Write(raw)
	return err
}

// Reply is a reply, decoded.
type Reply = wire.Value

// Receive reads the next reply and passes earlier pushes to Push. The error is wire.ErrMalformed, a
// timeout, or what ended the connection.
func (c *Conn) Receive(timeout time.Duration) (Reply, error) {
	c.nc.SetReadDeadline(time.Now().Add(timeout))
	for {
		r, err := c.value()
		if err != nil || r.Type != '>' {
			return r, err
		}
		c.pushed(r)
	}
}

func (c *Conn) pushed(r Reply) {
	if c.Push == nil {
		return
	}
	elems := make([]string, len(r.Elems))
	for i, e := range r.Elems {
		elems[i] = strings.TrimPrefix(e.String(), ":")
	}
	c.Push(elems)
}

// Idle reads pushes until the time has expired and then returns nil, otherwise what ended the
// connection. A reply to no request is wire.ErrMalformed.
func (c *Conn) Idle(d time.Duration) error {
	until := time.Now().Add(d)
	for {
		c.nc.SetReadDeadline(until)
		if _, err := c.in.Peek(1); err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				return nil
			}
			return err
		}
		c.nc.SetReadDeadline(until.Add(5 * time.Second))
		r, err := c.value()
		if err != nil {
			return err
		}
		if r.Type != '>' && !(r.Type == '-' && strings.HasPrefix(r.Text, "UPSTREAM")) {
			return fmt.Errorf("%w: %q came unasked", wire.ErrMalformed, r)
		}
		if r.Type == '>' {
			c.pushed(r)
		}
	}
}

// Do sends one command and reads its reply.
func (c *Conn) Do(timeout time.Duration, args ...string) (Reply, error) {
	if err := c.Send(args...); err != nil {
		return Reply{}, err
	}
	return c.Receive(timeout)
}

func (c *Conn) value() (Reply, error) { return wire.ReadValue(c.in, wire.Either) }

// WriteSlowly sends bytes, however long the peer takes to make room for them.
func (c *Conn) WriteSlowly(raw []byte) error {
	c.nc.SetWriteDeadline(time.Time{})
	_, err := c.nc.Write(raw)
	return err
}
