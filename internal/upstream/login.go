package upstream

// New connections are logged in and set up here.

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"lockproxy/internal/cluster"
	"lockproxy/internal/resp"
	"lockproxy/internal/socket"
)

// probe is a request whose reply doesn't matter.
const probe = "PING"

// login sets a new connection up. If setup logs in as the proxy does, login sends the password in
// use, and after a refusal the one that was found then.
func (u *Upstream) login(nc net.Conn, addr string, setup [][]string) error {
	setup = u.current(setup)
	for tries := 1; ; tries++ {
		err := u.send(nc, addr, setup)
		refused, ok := errors.AsType[*Refused](err)
		if !ok || refused.Step != "AUTH" || tries == maxPasswords {
			return err
		}
		next, again := u.LoginAfter(setup)
		if !again {
			return err
		}
		setup = next
	}
}

// maxPasswords is how many are tried for a connection: one that was just read can be replaced before
// it is sent.
const maxPasswords = 4

// send is login with setup as it is. An AUTH must be the first request: behind others, Redis as of
// 7.2 can leave out its refusal. Labels can be refused, and nothing else.
func (u *Upstream) send(nc net.Conn, addr string, setup [][]string) error {
	cmds := slices.Clone(setup)
	if u.sentinels != nil {
		cmds = append(cmds, []string{askRole})
	}
	if _, isTLS := nc.(*socket.TLS); isTLS && len(cmds) == 0 {
		// With TLS 1.3 the server refuses a client's certificate only after the handshake: any
		// reply shows that it didn't.
		cmds = [][]string{{probe}}
	}
	if len(cmds) == 0 {
		return nil
	}
	replies, err := roundTrip(nc, cmds...)
	for i, reply := range replies {
		switch step := strings.ToUpper(cmds[i][0]); {
		case isRefusal(reply.Head):
			return &Refused{Addr: addr, From: nc.RemoteAddr().String(), Step: step,
				Reply: reply.said()}
		case step == askRole:
			if err := checkRole(reply.raw); err != nil {
				return &Error{Addr: addr, Err: err}
			}
		case reply.IsError() && i < len(setup) && !isLabel(cmds[i]):
			if step == "CLIENT" {
				step += " " + strings.ToUpper(cmds[i][1])
			}
			return &Refused{Addr: addr, From: nc.RemoteAddr().String(), Step: step,
				Reply: reply.said()}
		}
	}
	if err != nil {
		return loginLost(nc, addr, err)
	}
	return nil
}

// isLabel reports whether a request sets one of Labels.
func isLabel(cmd []string) bool {
	return strings.EqualFold(cmd[0], "CLIENT") &&
		(strings.EqualFold(cmd[1], "SETNAME") || strings.EqualFold(cmd[1], "SETINFO"))
}

// askRole is the request whose reply tells whether a server is a master.
const askRole = "ROLE"

// reply is the reply to a request of the proxy's own.
type reply struct {
	resp.Head
	raw []byte
}

// maxSaid bounds the text of an error that is told to people and clients, bytes.
const maxSaid = 1 << 10

// said is the text of an error: Head has the beginning only.
func (r reply) said() string {
	v, _ := resp.ParseValue(r.raw) // ReadReply has found it whole
	return string(v.Text[:min(len(v.Text), maxSaid)])
}

// maxSetupReply bounds such a reply, bytes.
const maxSetupReply = 1 << 20

// errUnexpectedReply is why a connection isn't used: what has come on it could be taken for the
// reply to the next request.
var errUnexpectedReply = errors.New("the upstream has closed the connection, " +
	"or sent a reply that nobody asked for")

// roundTrip sends requests by a connection on which nothing else is under way, and returns the
// replies: if it fails, as many as have come. It reads nothing beyond the last. A reply that is none
// to its request is an error, since those behind it are not told apart either. After an error the
// connection can't be used.
func roundTrip(conn net.Conn, cmds ...[]string) (replies []reply, err error) {
	var out []byte
	for _, cmd := range cmds {
		out = resp.AppendCommand(out, cmd...)
	}
	if _, err := conn.Write(out); err != nil {
		return nil, err
	}
	for _, cmd := range cmds {
		raw, head, err := resp.ReadReply(conn, maxSetupReply)
		if err == nil && !answers(cmd, head) {
			err = errUnexpectedReply
		}
		if err != nil {
			return replies, err
		}
		replies = append(replies, reply{head, raw})
	}
	if !isIdle(conn, true) {
		return replies, errUnexpectedReply
	}
	return replies, nil
}

// answers reports whether a reply can be Redis's to a request of the proxy's own.
func answers(cmd []string, h resp.Head) bool {
	kinds, line := "", ""
	switch name := strings.ToUpper(cmd[0]); {
	case h.IsError():
		return true
	case name == "AUTH", name == "SELECT", isLabel(cmd):
		kinds, line = "+", "OK"
	case name == "RESET":
		kinds, line = "+", "RESET"
	case name == probe:
		kinds, line = "+", "PONG"
	case name == "HELLO":
		kinds = "*%"
	case name == askRole:
		kinds = "*"
	case name == "INFO", name == "CLIENT" && strings.EqualFold(cmd[1], "INFO"):
		kinds = "$="
	default:
		return true
	}
	return strings.IndexByte(kinds, h.Type) >= 0 && (line == "" || string(h.Line) == line)
}

// errAfterHandshake is how TLS 1.3 refuses a client's certificate. The upstream's answer can be
// lost with the connection.
var errAfterHandshake = errors.New("the connection ended right after the handshake: the upstream " +
	"may want a client certificate, or refuse this one")

func loginLost(nc net.Conn, addr string, err error) error {
	if _, isTLS := nc.(*socket.TLS); isTLS && !errors.Is(err, os.ErrDeadlineExceeded) &&
		err != errUnexpectedReply {
		err = fmt.Errorf("TLS: %w: %w", errAfterHandshake, err)
	}
	return &Error{Addr: addr, Err: err}
}

// looks is a connection that is no socket, and that a Dialer has made.
type looks interface {
	Unread() (n int, ended bool) // what a read would return at once
}

// isIdle reports whether a connection on which nothing is expected is open, and nothing has come on
// it. A push may have, which the next reader of the same client can tell from replies, if pushes is
// true.
func isIdle(conn net.Conn, pushes bool) bool {
	if whole, ok := conn.(*cluster.Conn); ok {
		return whole.Quiet(pushes)
	}
	if c, ok := conn.(looks); ok {
		n, ended := c.Unread()
		return n == 0 && !ended
	}
	if secure, ok := conn.(*socket.TLS); ok {
		next, unread, open := secure.Next()
		return open && (!unread || pushes && next == '>')
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	control, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = control.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		silent = errors.Is(err, syscall.EAGAIN) || pushes && n == 1 && b[0] == '>'
	})
	return err == nil && silent
}
