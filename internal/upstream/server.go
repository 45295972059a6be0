package upstream

// A connection leads to a server, which its question finds out. A name, a balancer or an address
// that moves can lead to another one at any time, and the former one may go on to answer on the
// connections that it has.

import (
	"bytes"
	"context"
	"net"
	"strings"

	"lockproxy/internal/resp"
)

// Server is what is known of the server that a connection leads to.
type Server struct {
	Addr  string // where it was dialled; "" for a cluster, which finds its nodes itself
	RunID string // the server's own, from INFO; "" if it was not asked, or does not tell this user
	// the connection's address at the server, from CLIENT INFO; "" likewise
	Local string
}

var (
	askInfo   = resp.AppendCommand(nil, "INFO", "server")
	askClient = resp.AppendCommand(nil, "CLIENT", "INFO")
)

// Question is the request whose reply Learn takes, to tell s from other servers; nil if only the
// address does.
func (s Server) Question() []byte {
	switch {
	case s.RunID != "":
		return askInfo
	case s.Local != "":
		return askClient
	}
	return nil
}

// Learn reads the server's reply to the Question, or to that of another Server.
func (s *Server) Learn(raw []byte) {
	if len(raw) == 0 || raw[0] == '-' {
		return
	}
	text := string(raw)
	if _, rest, ok := strings.Cut(text, "\nrun_id:"); ok {
		s.RunID, _, _ = strings.Cut(rest, "\r")
	}
	if _, rest, ok := strings.Cut(text, " laddr="); ok {
		s.Local, _, _ = strings.Cut(rest, " ")
	}
}

// Is reports whether o is the same server; known is false if it must be asked s.Question first.
func (s Server) Is(o Server) (same, known bool) {
	switch {
	case s.RunID != "":
		return s.RunID == o.RunID, o.RunID != ""
	case s.Local != "":
		return s.Local == o.Local && s.Addr == o.Addr, o.Local != "" || s.Addr != o.Addr
	}
	return s.Addr == o.Addr, true
}

// Differs reports whether o is another server for certain, by what is known of both.
func (s Server) Differs(o Server) bool {
	if s.RunID != "" && o.RunID != "" {
		return s.RunID != o.RunID
	}
	return s.Addr != o.Addr || s.Local != "" && o.Local != "" && s.Local != o.Local
}

// Joined is s with what is known of the same server by o.
func (s Server) Joined(o Server) Server {
	if o.RunID == "" {
		o.RunID = s.RunID
	}
	if o.Local == "" {
		o.Local = s.Local
	}
	return o
}

// ServerOf is what is known of a connection's server without asking.
func (u *Upstream) ServerOf(conn net.Conn) Server {
	if u.cluster != nil {
		return Server{}
	}
	return Server{Addr: conn.RemoteAddr().String()}
}

// DialKnown is Dial for a connection on which the upstream has answered, and which server it is. If
// that demands a login the error is a *Refused.
func (u *Upstream) DialKnown(
	ctx context.Context, id Identity,
) (conn net.Conn, server Server, err error) {
	if conn, err = u.Dial(ctx, Setup{Identity: id}); err != nil {
		return nil, Server{}, err
	}
	err = within(ctx, conn, func() (err error) {
		if server, err = u.askServer(conn, id.User); server.Addr == "" && !id.LoggedIn {
			_, err = u.ask(conn, []string{probe})
		}
		return err
	})
	if err = u.closeIf(err, conn); err != nil {
		return nil, Server{}, err
	}
	return conn, server, nil
}

// askServer asks the server that a connection leads to which it is. A cluster is not asked.
func (u *Upstream) askServer(conn net.Conn, user string) (server Server, err error) {
	if server = u.ServerOf(conn); server.Addr == "" {
		return server, nil
	}
	questions := [][]string{{"CLIENT", "INFO"}, {"INFO", "server"}}
	if _, refused := u.refuseInfo.Load(user); refused {
		questions = questions[:1] // Redis remembers refusals (ACL LOG)
	}
	replies, err := u.ask(conn, questions...)
	for _, reply := range replies {
		server.Learn(reply.raw)
		if reply.IsError() && strings.HasPrefix(string(reply.Line), "NOPERM") {
			u.refuseInfo.Store(user, true)
		}
	}
	return server, err
}

// IsReadOnly reports whether a reply says that the server is a replica, which refuses writes. Up to
// Redis 6 a script's error has that somewhere within.
func IsReadOnly(h resp.Head) bool {
	return h.IsError() && bytes.Contains(h.Line, []byte("READONLY You can't write"))
}
