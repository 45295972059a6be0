package passthrough

import (
	"bufio"
	"context"
	"net"
	"time"

	"lockproxy/internal/resp"
)

// Single is an upstream connection for the proxy's own requests, one at a time. Not safe for concurrent use.
type Single struct {
	addr string
	nc   net.Conn
	in   *bufio.Reader
}

// Single opens a connection that is logged in as id. ctx bounds only the opening. The error is an *Error or a *Refused.
func (u *Upstream) Single(ctx context.Context, id Identity) (*Single, error) {
	id.Proto = 2
	nc, err := u.connect(ctx, id)
	if err != nil {
		return nil, err
	}
	return &Single{addr: u.Addr, nc: nc, in: bufio.NewReader(nc)}, nil
}

// Do sends one request and waits for its reply, no longer than timeout. After an error, always an *Error, the connection is of no more use.
func (s *Single) Do(raw []byte, timeout time.Duration) (resp.Value, error) {
	s.nc.SetDeadline(time.Now().Add(timeout))
	if _, err := s.nc.Write(raw); err != nil {
		return resp.Value{}, &Error{Addr: s.addr, Sent: true, Err: err}
	}
	var scan resp.Scanner
	var reply []byte
	for {
		if _, err := s.in.Peek(1); err != nil {
			return resp.Value{}, &Error{Addr: s.addr, Sent: true, Err: err}
		}
		have, _ := s.in.Peek(s.in.Buffered())
		n, done, err := scan.Scan(have)
		reply = append(reply, have[:n]...)
		s.in.Discard(n)
		if err == nil && done {
			return resp.ParseValue(reply)
		}
		if err != nil || len(reply) > maxCall {
			return resp.Value{}, &Error{Addr: s.addr, Sent: true, Err: err}
		}
	}
}

// Close ends the connection.
func (s *Single) Close() { s.nc.Close() }
