package proxytest

import (
	"bufio"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// Conn is a client that shows every byte.
type Conn struct {
	T testing.TB
	net.Conn
	In *bufio.Reader

	hello, reset seen // words among what was written
	speaks3      bool // HELLO was answered in RESP3
}

// seen counts a word, in capitals or not, in bytes that come in pieces.
type seen struct {
	at    int // so many of its bytes have come
	times atomic.Int64
}

func (s *seen) look(p []byte, word string) {
	for _, b := range p {
		switch b | 0x20 {
		case word[s.at]:
			s.at++
		case word[0]:
			s.at = 1
		default:
			s.at = 0
		}
		if s.at == len(word) {
			s.at = 0
			s.times.Add(1)
		}
	}
}

// Write is net.Conn's. It sees which version of the protocol the client asks for.
func (c *Conn) Write(p []byte) (int, error) {
	c.hello.look(p, "hello")
	c.reset.look(p, "reset")
	return c.Conn.Write(p)
}

// protocol is the version that the next reply must have.
func (c *Conn) protocol() wire.Protocol {
	switch hellos := c.hello.times.Load(); {
	case hellos == 0:
		return wire.RESP2
	case c.speaks3 && hellos == 1 && c.reset.times.Load() == 0:
		return wire.RESP3
	}
	return wire.Either
}

// Dial connects a client to addr. The connection closes with the test.
func Dial(t testing.TB, addr string) *Conn {
	t.Helper()
	nc := DialRaw(t, addr)
	t.Cleanup(func() { nc.Close() })
	return Dialed(t, nc)
}

// TryDial connects to addr, as the clients of the proxy there do, if it is one.
func TryDial(addr string) (net.Conn, error) { return dial(Ctx, "tcp", addr) }

// DialRaw connects to addr. The test closes the connection.
func DialRaw(t testing.TB, addr string) net.Conn {
	t.Helper()
	nc, err := TryDial(addr)
	if err != nil {
		t.Fatal(err)
	}
	return nc
}

// Dialed is a client on a connection that the test has made itself.
func Dialed(t testing.TB, nc net.Conn) *Conn {
	return &Conn{T: t, Conn: nc, In: bufio.NewReader(nc)}
}

// Send writes commands given as words separated by blanks, in one write.
func (c *Conn) Send(commands ...string) {
	c.T.Helper()
	var out []byte
	for _, command := range commands {
		out = wire.Append(out, strings.Fields(command)...)
	}
	c.WriteRaw(string(out))
}

// WriteRaw writes bytes as they are.
func (c *Conn) WriteRaw(raw string) {
	c.T.Helper()
	if _, err := c.Write([]byte(raw)); err != nil {
		c.T.Fatalf("write: %v", err)
	}
}

// Reply reads one whole reply, raw.
func (c *Conn) Reply() string {
	c.T.Helper()
	raw, err := c.TryReply()
	if err != nil {
		c.T.Fatalf("no reply: %v (have %q)", err, raw)
	}
	return raw
}

// TryReply is Reply for a client whose connection may end: then it returns the error, and what was
// read of the reply. If neither comes, the test has failed.
func (c *Conn) TryReply() (string, error) {
	c.T.Helper()
	c.SetReadDeadline(testwait.Deadline())
	c.In.Peek(1) // what it answers has been written then
	return c.read(c.protocol())
}

func (c *Conn) read(p wire.Protocol) (string, error) {
	c.T.Helper()
	c.SetReadDeadline(testwait.Deadline())
	raw, err := wire.ReadReply(c.In, p)
	if strings.HasPrefix(raw, "%") && strings.Contains(raw, "$5\r\nproto\r\n:3\r\n") {
		c.speaks3 = true
	}
	if IsTimeout(err) {
		c.T.Errorf("neither a reply nor the end within %v, only %q", testwait.Patience, raw)
	}
	return raw, err
}

// Close closes the connection, as a client that has read what came. The other side is told at once:
// a process that another test starts at this moment has the connection too, until it runs its own
// program, and so closing alone is not the end of it. What comes meanwhile would reach the client.
func (c *Conn) Close() error {
	if conn, ok := c.Conn.(*net.TCPConn); ok {
		if n, ended := unread(c.T, conn); n == 0 && !ended {
			conn.CloseRead()
			conn.CloseWrite()
		}
	}
	return c.Conn.Close()
}

// CloseWrite closes the sending side.
func (c *Conn) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

// Arrived reports, without waiting, whether something has come that is not read yet: a reply, a
// part of one, or the end of the connection.
func (c *Conn) Arrived() bool {
	n, ended := unread(c.T, c.Conn)
	return c.In.Buffered() > 0 || n > 0 || ended
}

// Do sends one command and returns its raw reply.
func (c *Conn) Do(command string) string {
	c.T.Helper()
	c.Send(command)
	return c.Reply()
}

// Expect sends one command and fails unless its raw reply is want; "…" at the end of want stands
// for anything.
func (c *Conn) Expect(command, want string) {
	c.T.Helper()
	got := c.Do(command)
	if prefix, open := strings.CutSuffix(want, "…"); got != want &&
		!(open && strings.HasPrefix(got, prefix)) {
		c.T.Errorf("%s: got %q, want %q", command, got, want)
	}
}

// ExpectInTime is Expect for what has a time limit, such as a lock command with a short WAIT, or a
// connection to the upstream. It asks again if the machine was too busy for that, and nothing has
// run.
func (c *Conn) ExpectInTime(command, want string) {
	c.T.Helper()
	got := ""
	testwait.Until(c.T, command+": the upstream answers in time", func() bool {
		got = c.Do(command)
		return !strings.Contains(got, "answered in time") && !strings.Contains(got, "not answer") &&
			!strings.Contains(got, "nothing was sent, try again")
	})
	if got != want {
		c.T.Errorf("%s: got %q, want %q", command, got, want)
	}
}

// Lock takes a lock and returns its token.
func (c *Conn) Lock(args string) int64 {
	c.T.Helper()
	got := c.Do("LOCK " + args)
	token, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(got, ":"), "\r\n"), 10, 64)
	if err != nil || token <= 0 || token >= 1<<53 {
		c.T.Fatalf("LOCK %s: got %q, want a token", args, got)
	}
	return token
}

// Closed fails unless the server closes the connection, with nothing more to read.
func (c *Conn) Closed() {
	c.T.Helper()
	if got, err := c.TryReply(); err == nil || got != "" {
		c.T.Errorf("want a closed connection, got %q, %v", got, err)
	}
}

// WantReply fails unless the next reply is want.
func (c *Conn) WantReply(want string) {
	c.T.Helper()
	if got := c.Reply(); got != want {
		c.T.Errorf("got %q, want %q", got, want)
	}
}

// DoWords sends one command whose words can be any bytes, and returns its raw reply.
func (c *Conn) DoWords(words ...string) string {
	c.T.Helper()
	c.WriteRaw(string(wire.Append(nil, words...)))
	return c.Reply()
}

// Answer reads one reply and skips pushes. A link can have inserted some for a client of RESP2.
func (c *Conn) Answer() string {
	c.T.Helper()
	for {
		got, err := c.read(wire.Either)
		if err != nil {
			c.T.Fatalf("no reply: %v (have %q)", err, got)
		}
		if got[0] != '>' {
			return got
		}
	}
}

// Asked sends one command and fails unless its reply, after any pushes, begins with want.
func (c *Conn) Asked(command, want string) {
	c.T.Helper()
	c.Send(command)
	if got := c.Answer(); !strings.HasPrefix(got, want) {
		c.T.Fatalf("%s: got %.200q, want %q", command, got, want)
	}
}

// Echoed has three ways to the upstream answered: the client's own connection, a shared one, and a
// lock's.
func (c *Conn) Echoed(marker string) {
	c.T.Helper()
	echo := func(n int) {
		text := fmt.Sprintf("%s-%d", marker, n)
		c.Asked("ECHO "+text, fmt.Sprintf("$%d\r\n%s\r\n", len(text), text))
	}
	echo(1)
	echo(2)
	c.Asked("MULTI", "+OK\r\n")
	c.Asked("ECHO in", "+QUEUED\r\n")
	c.Asked("EXEC", "*1\r\n$2\r\nin\r\n")
	echo(3)
	c.Asked("WATCH k", "+OK\r\n")
	echo(4)
	c.Asked("UNWATCH", "+OK\r\n")
	echo(5)
	c.Asked("LOCK "+marker+" 600", ":")
	c.Asked("UNLOCK "+marker, ":1\r\n")
	c.Asked("CLIENT SETNAME "+marker, "+OK\r\n")
	echo(6)
}
