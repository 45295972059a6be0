package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"lockproxy/internal/resp"
	"lockproxy/internal/socket"
)

// rawClient is a client that costs next to nothing, since it shares the machine with what it
// measures: one connection, one command at a time, only the replies that the workloads meet, and
// its socket read and written as a client in C would.
type rawClient struct {
	nc  net.Conn
	way io.ReadWriter // nc's bytes
	in  *bufio.Reader
	out []byte
}

// maxReply is how long a reply can take: longer than any wait of a workload that goes well.
const maxReply = 60 * time.Second

func dial(addr string) (*rawClient, error) {
	nc, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	nc.SetDeadline(time.Now().Add(maxRun))
	way := socket.New(nc)
	return &rawClient{nc: nc, way: way, in: bufio.NewReader(way)}, nil
}

func (c *rawClient) close() { c.nc.Close() }

func (c *rawClient) send(args ...string) error {
	c.out = resp.AppendCommand(c.out[:0], args...)
	_, err := c.way.Write(c.out)
	return err
}

func (c *rawClient) do(args ...string) (reply, error) {
	if err := c.send(args...); err != nil {
		return reply{}, err
	}
	return c.receive()
}

// number is do for a command that is answered a number, or null, which is 0.
func (c *rawClient) number(args ...string) (int64, error) {
	r, err := c.do(args...)
	return r.n, err
}

// reply is a status, a whole number, a string or null.
type reply struct {
	null bool
	n    int64
	text string // of all but numbers
}

// receive reads one reply. An error reply is an error.
func (c *rawClient) receive() (reply, error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return reply{}, err
	}
	if len(line) < 3 {
		return reply{}, fmt.Errorf("reply %q is too short", line)
	}
	rest := line[1 : len(line)-2]
	switch line[0] {
	case ':':
		n, ok := resp.ParseInt(rest)
		if !ok {
			return reply{}, fmt.Errorf("reply %q is no number", line)
		}
		return reply{n: n}, nil
	case '+':
		return reply{text: string(rest)}, nil
	case '-':
		return reply{}, errors.New(string(rest))
	case '$':
		return c.bulk(rest)
	}
	return reply{}, fmt.Errorf("reply %q is of a kind that no workload expects", line)
}

func (c *rawClient) bulk(length []byte) (reply, error) {
	n, err := strconv.Atoi(string(length))
	if err != nil || n < 0 {
		return reply{null: true}, err
	}
	body := make([]byte, n+2)
	_, err = io.ReadFull(c.in, body)
	return reply{text: string(body[:n])}, err
}
