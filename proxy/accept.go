package proxy

// How a connection becomes a session, or is one too many.

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/tidwall/redcon"

	"lockproxy/internal/resp"
	"lockproxy/passthrough"
)

// accept takes a new connection over from redcon. It runs on the accepting goroutine, so it only starts things.
func (s *Server) accept(conn redcon.Conn) bool {
	raw := conn.NetConn().(accepted).Conn
	conn.Detach()
	s.mu.Lock()
	if s.stopping || len(s.sessions) >= s.cfg.MaxClients {
		refused := !s.stopping
		s.counters.rejected.Add(1)
		s.mu.Unlock()
		s.refuse(raw, refused)
		return false
	}
	s.counters.accepted.Add(1)
	sess := s.newSession(raw)
	if s.draining {
		sess.idleEnd = s.idleEnd
		sess.client.setPhase(draining)
	}
	s.sessions[sess] = struct{}{}
	s.serving.Add(1)
	s.mu.Unlock()
	// The goroutine ends with its client, by drain or kill, or when the session is parked. Shutdown
	// and Close wait for the session.
	go func() {
		if s.handshake(sess.ctx, sess.client) {
			sess.serve()
		} else {
			sess.cancel()
			s.ended(sess)
		}
	}()
	return false
}

// ended frees what a session has had. Its client is gone.
func (s *Server) ended(sess *session) {
	c := sess.client
	c.guard.Stop()
	c.raw.Close()
	s.locks.Gone(&c.holder)
	c.publish()
	s.mu.Lock()
	delete(s.sessions, sess)
	s.counters.ended.add(&c.traffic)
	s.mu.Unlock()
	s.serving.Done()
}

// refuse closes a connection that was one too many. As in Redis a client with TLS isn't told why:
// that would take a handshake.
func (s *Server) refuse(raw net.Conn, say bool) {
	if say && s.cfg.TLS == nil {
		// The socket's buffer is empty: this doesn't wait.
		raw.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		raw.Write([]byte("-ERR max number of clients reached\r\n"))
	}
	raw.Close()
}

func (s *Server) newSession(raw net.Conn) *session {
	c := newClient(raw, s.wrap(raw))
	c.observer, c.origin = s.cfg.Observer, s.started
	c.holder.Connection = fmt.Sprintf("%s-%d", s.id, s.nextConn.Add(1))
	direct := c.socket // where what is written to the client isn't encrypted
	if s.cfg.TLS != nil {
		direct = nil
	}
	sess := &session{}
	sess.client, sess.quota, sess.server = c, &s.buffers, s
	sess.framer = resp.NewFramer(s.cfg.Limits)
	sess.framer.Unauthenticated(true) // for all that is known
	sess.pipe = passthrough.NewPipe(s.lanes, c, direct, encodeLost)
	sess.ctx, sess.cancel = context.WithCancel(s.ctx)
	if _, isTCP := raw.(*net.TCPConn); isTCP && !c.wrapped() {
		c.reg = s.loops.NewRegistration(sess, c.socket.Raw())
	}
	return sess
}
