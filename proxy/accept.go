package proxy

// A connection becomes a session, or is one too many.

import (
	"context"
	"fmt"
	"net"

	"github.com/tidwall/redcon"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/passthrough"
)

// accept takes a new connection over from redcon. It runs on the accepting goroutine, so it only
// starts things.
func (s *Server) accept(conn redcon.Conn) bool {
	raw := conn.NetConn().(accepted).Conn
	conn.Detach()
	sess, full := s.add(func() *session { return newSession(s, raw) })
	if sess == nil {
		s.counters.rejected.Add(1)
		refuse(raw, full && s.cfg.TLS == nil)
		return false
	}
	s.counters.accepted.Add(1)
	// The goroutine ends with its client, by drain or kill, or when the session is parked. Shutdown
	// and Close wait for the session.
	go sess.serve()
	return false
}

// refuse closes a connection. With tell it says that there are too many. As in Redis, a client with
// TLS is not told: that would take a handshake.
func refuse(raw net.Conn, tell bool) {
	if tell {
		// The socket's buffer is empty: this does not wait. A deadline could pass before, while the
		// machine is busy.
		raw.Write([]byte("-ERR max number of clients reached\r\n"))
	}
	raw.Close()
}

func newSession(s *Server, raw net.Conn) *session {
	c := newClient(raw, s.cfg.wrap(raw))
	c.observer, c.origin = s.cfg.Observer, s.started
	c.holder.Connection = fmt.Sprintf("%s-%d", s.id, s.nextConn.Add(1))
	pipe := passthrough.NewPipe(s.pool, c, c.direct, encodeError)
	sess := &session{common: common{client: c, server: s, pipe: pipe}}
	all, in, x := &sess.common, &sess.in, &sess.x
	*in = input{client: c, framer: resp.NewFramer(s.cfg.Limits), quota: &s.buffers}
	in.framer.Unauthenticated(true) // it may have to log in
	*x = exchange{common: all, in: in}
	x.waker.changed.L = &x.waker.mu
	x.ctx, sess.cancel = context.WithCancel(s.ctx)
	sess.locks = locker{common: all, x: x, steps: lockSession{common: all, x: x}}
	sess.requests = dispatcher{common: all, in: in, x: x, locks: &sess.locks,
		delayed: delayer{locks: &sess.locks}, ends: lockEnds{common: all}}
	pipe.Waiter, c.holder.LockLost, c.holder.Login = sess, sess.locks.lockLost, sess.locks.login
	if c.socket != nil {
		var handler eventloop.Handler // nil: a goroutine reads, unless it waits for Redis
		if _, isTCP := raw.(*net.TCPConn); isTCP && c.readsDirectly() {
			handler = sess
		}
		c.reg = s.loops.Load().NewRegistration(handler, c.socket.Raw())
	}
	return sess
}
