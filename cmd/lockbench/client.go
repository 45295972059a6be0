package main

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/socket"
)

// client is one connection with little overhead, since it shares the machine with the servers that
// it measures. It sends one command at a time, and uses its socket as a client in C does.
type client struct {
	conn net.Conn
	way  io.ReadWriter // conn's bytes
	in   *bufio.Reader
	out  []byte
}

// maxRun bounds every connection of the benchmark, so that no run can hang. No run takes as long.
const maxRun = 3 * time.Minute

func dial(addr string) (*client, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(maxRun))
	way := socket.New(conn)
	return &client{conn: conn, way: way, in: bufio.NewReaderSize(way, 512)}, nil
}

// dialTLS is dial with TLS. It does not verify the certificate, so no figure includes that cost.
func dialTLS(addr string) (*client, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(maxRun))
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	return &client{conn: secure, way: secure, in: bufio.NewReader(secure)}, nil
}

// dialMany connects n clients, and each sends a PING. After an error, too, the caller closes the
// clients in the list.
func dialMany(addr string, n int) (list clients, err error) {
	for range n {
		c, err := dial(addr)
		if err != nil {
			return list, fmt.Errorf("client %d of %d: %w", len(list)+1, n, err)
		}
		list = append(list, c)
		if _, err := c.do("PING"); err != nil {
			return list, fmt.Errorf("client %d of %d: %w", len(list), n, err)
		}
	}
	return list, nil
}

type clients []*client

func (list clients) close() {
	for _, c := range list {
		c.close()
	}
}

func (c *client) close() { c.conn.Close() }

// do sends a command and reads its reply. An error reply is an error.
func (c *client) do(args ...string) (reply, error) {
	c.out = resp.AppendCommand(c.out[:0], args...)
	if _, err := c.way.Write(c.out); err != nil {
		return reply{}, err
	}
	r, err := c.receive()
	if err != nil {
		err = fmt.Errorf("%s: %w", args[0], err)
	}
	return r, err
}

// number is do for a command whose reply is a number, or null, which counts as 0.
func (c *client) number(args ...string) (int64, error) {
	r, err := c.do(args...)
	return r.n, err
}

// reply is a status, a whole number, a string or null.
type reply struct {
	null bool
	n    int64
	text string
}

func (c *client) receive() (reply, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return reply{}, err
	}
	if len(line) < 3 {
		return reply{}, fmt.Errorf("reply %q is too short", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return reply{text: string(rest)}, nil
	case '-':
		return reply{}, errors.New(string(rest))
	}
	n, ok := resp.ParseInt(rest)
	if !ok {
		return reply{}, fmt.Errorf("reply %q is of a kind that no workload expects", line)
	}
	switch {
	case kind == ':':
		return reply{n: n}, nil
	case n < 0 && (kind == '$' || kind == '*'):
		return reply{null: true}, nil
	case kind == '$':
		body := make([]byte, n+2)
		_, err = io.ReadFull(c.in, body)
		return reply{text: string(body[:n])}, err
	}
	return reply{}, fmt.Errorf("reply %q is of a kind that no workload expects", line)
}
