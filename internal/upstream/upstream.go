package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/internal/cluster"
	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
)

// Upstream is the Redis that the proxy stands in front of. It is safe for concurrent use.
type Upstream struct {
	Network string   // "tcp" or "unix"
	Addr    string   // host:port or a socket's path; the group's name if Sentinels tell the address
	Initial Identity // what a client starts as: the URL's credentials and database
	// LossBound is how long its machine can acknowledge nothing before a connection is given up; 0
	// is a minute.
	LossBound time.Duration
	// Dialer makes its plain connections; nil is the machine's network.
	Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

	tls       atomic.Pointer[tls.Config] // nil for none
	sentinels *sentinels                 // nil if no Sentinels tell the address
	cluster   *cluster.Cluster           // nil for a single server
	loops     atomic.Pointer[eventloop.Loops]

	secrets    secrets
	refuseInfo sync.Map // has the users that may not ask INFO
	own        ownConns
}

// TLS is the configuration for new connections; nil is plain text. It must not be modified: to
// change it, SetTLS a Clone.
func (u *Upstream) TLS() *tls.Config { return u.tls.Load() }

// SetTLS changes the configuration for new connections.
func (u *Upstream) SetTLS(cfg *tls.Config) { u.tls.Store(cfg) }

// String names the upstream without its password.
func (u *Upstream) String() string {
	if u.sentinels != nil {
		return u.sentinels.String()
	}
	return u.Addr
}

// MarshalText is String for logs in JSON.
func (u *Upstream) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// Moves reports whether another server can take this one's place. Then requests that fail meanwhile
// may succeed later.
func (u *Upstream) Moves() bool { return u.sentinels != nil || u.cluster != nil }

// Dial opens a connection that is set up as a client's. The error is an *Error, or the upstream's
// own refusal as a *Refused.
//
// If Sentinels tell the address, the server has said that it is the master, unless the user may not
// ask; when it is replaced, the connection is closed.
//
// The connection to a cluster is one to all of its nodes.
func (u *Upstream) Dial(ctx context.Context, as Setup) (net.Conn, error) {
	return u.dial(ctx, as, false)
}

// dial is Dial for a client, or for requests of the proxy's own.
func (u *Upstream) dial(ctx context.Context, as Setup, own bool) (net.Conn, error) {
	if u.cluster != nil {
		return u.dialCluster(ctx, as, own)
	}
	addr := u.Addr
	var err error
	if u.sentinels != nil {
		if addr, err = u.sentinels.current(ctx); err != nil {
			return nil, &Error{Addr: u.Addr, Err: err}
		}
	}
	return u.dialServer(ctx, addr, as.commands())
}

// StillAdmits finds out by a new connection whether clients are let in that do not log in
// themselves, in a cluster by all masters, and which server that leads to. The error says why they
// are not.
func (u *Upstream) StillAdmits(ctx context.Context) (server Server, err error) {
	conn, err := u.Dial(ctx, Setup{Identity: u.Initial})
	if err != nil {
		return Server{}, err
	}
	defer CloseAndWait(conn)
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	if u.cluster == nil {
		return u.askServer(conn, u.Initial.User)
	}
	replies, err := u.ask(conn, []string{askAll})
	if err == nil {
		err = FailureIn(replies[0].raw)
	}
	return Server{}, err
}

// IsLoginDemand reports whether an error says that clients must log in first, or that the login of
// a connection is not accepted any more. A server that is full has not judged the login.
func IsLoginDemand(err error) bool {
	refused, ok := errors.AsType[*Refused](err)
	return ok && (refused.Step == "AUTH" && !turnsAway(refused.Reply) ||
		refused.Step == probe && strings.HasPrefix(refused.Reply, noAuth))
}

// noAuth begins what a server says that demands a login.
const noAuth = "NOAUTH"

// ask sends questions by a connection on which nothing else is under way. The error is a *Refused
// if an answer says that the connection can't be used.
func (u *Upstream) ask(conn net.Conn, questions ...[]string) (replies []reply, err error) {
	replies, err = roundTrip(conn, questions...)
	for _, reply := range replies {
		if letsNobodyIn(reply.Head) {
			return replies, &Refused{Addr: u.Addr, From: conn.RemoteAddr().String(), Step: probe,
				Reply: reply.said()}
		}
	}
	return replies, err
}

// askAll is a request that all masters of a cluster answer.
const askAll = "DBSIZE"

// letsNobodyIn reports whether a reply says that a new connection can't be used: the server demands
// a login, or closes what it says it to. Other errors are about the probe itself.
func letsNobodyIn(h resp.Head) bool {
	return h.IsError() && strings.HasPrefix(string(h.Line), noAuth) || isRefusal(h)
}

// isRefusal reports whether a reply is no reply, but what Redis says to a connection before it
// closes it: there are too many, or it is in protected mode.
func isRefusal(h resp.Head) bool { return h.IsError() && turnsAway(string(h.Line)) }

func turnsAway(said string) bool {
	return strings.HasPrefix(said, "ERR max number of clients") ||
		strings.HasPrefix(said, "DENIED")
}
