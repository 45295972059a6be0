package virtualnet

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Conn is one end of a connection. It is safe for concurrent use.
type Conn struct {
	in, out     *stream
	local, peer *net.TCPAddr
	resets      atomic.Bool // see SetLinger
}

// pair returns both ends of a new connection.
func pair(client, server *net.TCPAddr) (*Conn, *Conn) {
	up, down := newStream(), newStream()
	return &Conn{in: down, out: up, local: client, peer: server},
		&Conn{in: up, out: down, local: server, peer: client}
}

func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.in.read(b)
	return n, c.failed("read", err)
}

func (c *Conn) Write(b []byte) (int, error) {
	n, unread, err := c.out.write(b)
	if unread {
		c.out.reset(syscall.EPIPE)
		c.in.reset(syscall.ECONNRESET)
	}
	return n, c.failed("write", err)
}

// failed is an error as package net's connections return it.
func (c *Conn) failed(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.peer, Err: err}
}

// Close closes both directions. The peer reads what was written and then the end, or that the
// connection was reset if bytes from it are unread.
func (c *Conn) Close() error {
	if c.resets.Load() {
		c.out.reset(syscall.ECONNRESET)
		c.in.reset(syscall.ECONNRESET)
	}
	unread, closed := false, false
	c.in.change(func() {
		unread, closed = len(c.in.data) > 0, c.in.noReader
		c.in.noReader, c.in.data = true, nil
		if unread && c.in.err == nil {
			c.in.err = syscall.EPIPE
		}
		c.in.readTimeout.setLocked(time.Time{}, c.in.changed)
	})
	c.out.change(func() {
		c.out.noWriter, c.out.ended = true, true
		if unread && c.out.err == nil {
			c.out.err = syscall.ECONNRESET
		}
		c.out.writeTimeout.setLocked(time.Time{}, c.out.changed)
	})
	if closed {
		return c.failed("close", net.ErrClosed)
	}
	return nil
}

// CloseWrite closes the direction to the peer, which reads what was written and then the end.
func (c *Conn) CloseWrite() error {
	var err error
	c.out.change(func() {
		if c.out.noWriter {
			err = net.ErrClosed
		}
		c.out.ended = true
	})
	return c.failed("close", err)
}

// Unread is how many bytes can be read at once, and whether an end or a reset can.
func (c *Conn) Unread() (n int, ended bool) {
	c.in.change(func() {
		n = len(c.in.data)
		ended = n == 0 && (c.in.ended || c.in.err != nil)
	})
	return n, ended
}

// CloseRead makes each read end.
func (c *Conn) CloseRead() error {
	c.in.change(func() { c.in.ended = true })
	return nil
}

// SetLinger(0) makes Close reset the connection: the peer reads nothing of what is on its way.
func (c *Conn) SetLinger(sec int) error {
	c.resets.Store(sec == 0)
	return nil
}

func (c *Conn) LocalAddr() net.Addr  { return c.local }
func (c *Conn) RemoteAddr() net.Addr { return c.peer }

func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *Conn) SetReadDeadline(t time.Time) (err error) {
	c.in.change(func() {
		if c.in.noReader {
			err = net.ErrClosed
			return
		}
		c.in.readTimeout.setLocked(t, c.in.changed)
	})
	return c.failed("set", err)
}

func (c *Conn) SetWriteDeadline(t time.Time) (err error) {
	c.out.change(func() {
		if c.out.noWriter {
			err = net.ErrClosed
			return
		}
		c.out.writeTimeout.setLocked(t, c.out.changed)
	})
	return c.failed("set", err)
}
