package proxy

// How a connection becomes a session, or is one too many.

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/tidwall/redcon"

	"lockproxy/internal/peer"
	"lockproxy/internal/resp"
	"lockproxy/internal/socket"
	"lockproxy/lockcmd"
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
		sess.setPhase(draining)
	}
	s.sessions[sess] = struct{}{}
	s.serving.Add(1)
	s.mu.Unlock()
	go func() { // ends with its client, or by drain or kill, or parks; Shutdown and Close wait for the session
		if sess.handshake() {
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
	sess.guard.Stop()
	sess.raw.Close()
	s.locks.Gone(&sess.holder)
	s.mu.Lock()
	s.retireLocked(sess)
	s.mu.Unlock()
	s.serving.Done()
}

// refuse closes a connection that was one too many. As in Redis a client with TLS isn't told why: that would take a handshake.
func (s *Server) refuse(raw net.Conn, say bool) {
	if say && s.cfg.TLS == nil {
		raw.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)) // the socket's buffer is empty: it doesn't wait
		raw.Write([]byte("-ERR max number of clients reached\r\n"))
	}
	raw.Close()
}

func (s *Server) newSession(raw net.Conn) *session {
	nc := s.wrap(raw)
	meter := s.newMeter(nc)
	sock := socket.New(raw)
	direct := sock // where what is written to the client isn't encrypted
	if s.cfg.TLS != nil {
		direct = nil
	}
	sess := &session{
		server: s,
		raw:    raw,
		nc:     nc,
		from:   nc,
		socket: sock,
		meter:  meter,
		pipe:   passthrough.NewPipe(s.lanes, meter, direct, encodeLost),
		framer: resp.NewFramer(s.cfg.Limits),
		holder: lockcmd.Holder{
			Connection: fmt.Sprintf("%s-%d", s.id, s.nextConn.Add(1)),
			Addr:       clientAddr(raw.RemoteAddr()),
		},
	}
	if direct != nil && nc == raw { // behind a PROXY header nc has bytes that its socket had
		sess.from = direct
		if _, isTCP := raw.(*net.TCPConn); isTCP {
			sess.reg = s.loops.NewRegistration(sess, sess.socket.Raw())
			meter.reg = sess.reg
		}
	}
	sess.guard = peer.NewGuard(raw, sess.silenceLimit, sess.closeRaw)
	meter.closeWrite, meter.cork = sess.closeWrite, sess.cork
	sess.framer.Unauthenticated(true) // for all that is known
	sess.ctx, sess.cancel = context.WithCancel(s.ctx)
	return sess
}
