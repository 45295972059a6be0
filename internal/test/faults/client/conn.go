//go:build linux

package client

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Conn is a connection to a proxy. Only one goroutine uses it at a time.
type Conn struct {
	nc   net.Conn
	in   *bufio.Reader
	Push func(elems []string) // called with each push; nil ignores them
}

// ErrGarbled is returned for bytes that are not a reply.
var ErrGarbled = errors.New("not a reply")

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

// Append adds a command in wire form.
func Append(out []byte, args ...string) []byte {
	out = append(out, '*')
	out = strconv.AppendInt(out, int64(len(args)), 10)
	out = append(out, "\r\n"...)
	for _, arg := range args {
		out = append(out, '$')
		out = strconv.AppendInt(out, int64(len(arg)), 10)
		out = append(out, "\r\n"...)
		out = append(out, arg...)
		out = append(out, "\r\n"...)
	}
	return out
}

// Send sends a command.
func (c *Conn) Send(args ...string) error { return c.Write(Append(nil, args...)) }

// Write sends bytes.
func (c *Conn) Write(raw []byte) error {
	c.nc.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, err := c.nc.Write(raw)
	return err
}

// Reply is a reply: Int of numbers, Text of strings, statuses and errors, Elems of aggregates; keys
// and values of maps are flat.
type Reply struct {
	Kind  byte // ':', '$', '+', '-', '*' or '_'
	Int   int64
	Text  string
	Elems []Reply
}

// Null reports whether r is a null.
func (r Reply) Null() bool { return r.Kind == '_' }

// Error reports whether r is an error reply.
func (r Reply) Error() bool { return r.Kind == '-' }

// String is for comparing and showing.
func (r Reply) String() string {
	switch r.Kind {
	case ':':
		return ":" + strconv.FormatInt(r.Int, 10)
	case '_':
		return "null"
	case '-':
		return "-" + r.Text
	case '*':
		parts := make([]string, len(r.Elems))
		for i, e := range r.Elems {
			parts[i] = e.String()
		}
		return "[" + strings.Join(parts, " ") + "]"
	}
	return r.Text
}

// Receive reads the next reply and passes earlier pushes to Push. The error is ErrGarbled, a
// timeout, or what ended the connection.
func (c *Conn) Receive(timeout time.Duration) (Reply, error) {
	c.nc.SetReadDeadline(time.Now().Add(timeout))
	for {
		kind, r, err := c.value(0)
		if err != nil || kind != '>' {
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
// connection. A reply to no request is ErrGarbled.
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
		kind, r, err := c.value(0)
		if err != nil {
			return err
		}
		if kind != '>' && !(kind == '-' && strings.HasPrefix(r.Text, "UPSTREAM")) {
			return fmt.Errorf("%w: %q came unasked", ErrGarbled, r)
		}
		if kind == '>' {
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

func (c *Conn) value(depth int) (kind byte, r Reply, err error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return 0, r, err
	}
	if len(line) < 3 || line[len(line)-2] != '\r' || depth > 8 {
		return 0, r, fmt.Errorf("%w: %q", ErrGarbled, line)
	}
	kind, line = line[0], line[1:len(line)-2]
	r = Reply{Kind: kind, Text: line}
	switch kind {
	case '+', '-':
		return kind, r, nil
	case '_':
		return kind, r, nil
	case ',', '#', '(':
		r.Kind = '$'
		return kind, r, nil
	}
	n, err := strconv.ParseInt(line, 10, 64)
	if err != nil || n < -1 && kind != ':' || n > 1<<24 && kind != ':' {
		return 0, r, fmt.Errorf("%w: %q", ErrGarbled, line)
	}
	switch kind {
	case ':':
		r.Int, r.Text = n, ""
	case '$', '=':
		if r.Kind = '$'; n < 0 {
			return kind, Reply{Kind: '_'}, nil
		}
		body := make([]byte, n+2)
		if _, err := io.ReadFull(c.in, body); err != nil {
			return 0, r, err
		}
		if body[n] != '\r' || body[n+1] != '\n' {
			return 0, r, fmt.Errorf("%w: a string of %d bytes ends with %q", ErrGarbled, n,
				body[n:])
		}
		r.Text = string(body[:n])
	case '*', '~', '%', '>':
		if n < 0 {
			return kind, Reply{Kind: '_'}, nil
		}
		if kind == '%' {
			n *= 2
		}
		r.Kind, r.Text = '*', ""
		for range n {
			_, elem, err := c.value(depth + 1)
			if err != nil {
				return 0, r, err
			}
			r.Elems = append(r.Elems, elem)
		}
	default:
		return 0, r, fmt.Errorf("%w: begins with %q", ErrGarbled, kind)
	}
	return kind, r, nil
}

// WriteSlowly sends bytes, however long the peer takes to make room for them.
func (c *Conn) WriteSlowly(raw []byte) error {
	c.nc.SetWriteDeadline(time.Time{})
	_, err := c.nc.Write(raw)
	return err
}
