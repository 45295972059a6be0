package passthrough

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	neturl "net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/cluster"
	"lockproxy/internal/peer"
	"lockproxy/internal/socket"
)

// Upstream is the Redis that the proxy stands in front of. It is safe for concurrent use; only SetTLS changes it.
type Upstream struct {
	Network string   // "tcp" or "unix"
	Addr    string   // host:port or a socket's path; the group's name if Sentinels tell the address
	Initial Identity // what a session starts as: the URL's credentials and database

	tls       atomic.Pointer[tls.Config] // nil for none
	dial      func(ctx context.Context, network, addr string) (net.Conn, error)
	sentinels *sentinels       // nil if no Sentinels tell the address
	cluster   *cluster.Cluster // nil for a single server
}

// Error is a failure of the upstream or of the way to it.
type Error struct {
	Addr string
	Sent bool // the request may have reached the upstream, and may have run
	Err  error
}

func (e *Error) Error() string {
	if e.Sent {
		return fmt.Sprintf("connection to %s was lost before the reply: whether the command ran is unknown (%v)", e.Addr, e.Err)
	}
	return fmt.Sprintf("cannot reach %s: nothing was sent, try again (%v)", e.Addr, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// lossBound is for how long an upstream's machine may acknowledge nothing: the kernel's own patience is 15 minutes.
const lossBound = time.Minute

// maxDial bounds a connection attempt whose context doesn't.
const maxDial = time.Hour

// MayHaveRun reports whether the request may have reached the upstream.
func (e *Error) MayHaveRun() bool { return e.Sent }

// ParseURL reads redis://[user:pass@]host:port[/db], rediss:// for TLS, unix://[user:pass@]/path[?db=n], or
// redis+sentinel://[user:pass@]host:port,host:port/group[/db] and rediss+sentinel://, whose upstream must be followed: see Follow; or
// redis+cluster://[user:pass@]host:port,host:port and rediss+cluster://, likewise.
// The error never contains the URL, which may hold a password.
func ParseURL(url string) (*Upstream, error) {
	scheme, rest, found := strings.Cut(url, "://")
	if !found {
		return nil, errors.New("want redis://[user:pass@]host:port[/db]")
	}
	switch scheme {
	case "redis", "rediss", "unix":
	case "redis+sentinel", "rediss+sentinel":
		return parseSentinelURL(scheme, rest)
	case "redis+cluster", "rediss+cluster":
		return parseClusterURL(scheme, rest)
	default:
		return nil, fmt.Errorf("scheme %q is not known: want redis, rediss, unix, redis+sentinel, rediss+sentinel, redis+cluster or rediss+cluster", scheme)
	}
	form := scheme + "://[user:pass@]host:port[/db]"
	if scheme == "unix" {
		form = "unix://[user:pass@]/path[?db=n]"
	}
	opt, err := redis.ParseURL(url)
	// A password with "#", "/", "?" or "@" in it that isn't percent-encoded ends up, in part, as the host.
	if err != nil || strings.Contains(url, "#") || strings.Count(url, "@") > 1 {
		return nil, fmt.Errorf("not a usable %s URL (it is not shown here since it may hold a password): want %s, with # / ? @ in a password written as %%23 %%2F %%3F %%40", scheme, form)
	}
	if err := checkParts(url, form); err != nil {
		return nil, err
	}
	if _, port, err := net.SplitHostPort(opt.Addr); opt.Network == "tcp" && (err != nil || !validPort(port)) {
		return nil, fmt.Errorf("the port in the %s URL is not one: want 1 to 65535", scheme)
	}
	return newUpstream(opt), nil
}

func newUpstream(opt *redis.Options) *Upstream {
	opt.DialTimeout = maxDial // connect's context is what bounds it
	u := &Upstream{Network: opt.Network, Addr: opt.Addr}
	u.tls.Store(opt.TLSConfig)
	u.Initial = Identity{User: opt.Username, Password: opt.Password, LoggedIn: opt.Password != "", DB: opt.DB, Proto: 2}
	// go-redis's dialer speaks TLS too, but hides the TCP connection that is needed to close one direction only.
	plain := *opt
	plain.TLSConfig = nil
	u.dial = redis.NewDialer(&plain)
	return u
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// checkParts refuses what go-redis takes from a URL and a proxy has no use for, rather than ignore it.
func checkParts(url, form string) error {
	parsed, err := neturl.Parse(url)
	if err != nil {
		return errors.New("not a URL") // without err, which quotes it
	}
	if parsed.Scheme == "unix" && parsed.Host != "" {
		return fmt.Errorf("the path in the unix URL is not absolute: want %s", form)
	}
	for name := range parsed.Query() {
		if name != "db" && (name != "skip_verify" || parsed.Scheme != "rediss") {
			return fmt.Errorf("option %q in the %s URL has no effect here: leave it out", name, parsed.Scheme)
		}
	}
	return nil
}

// TLS is what connections are made with from now on; nil is plain text. It must not be modified: SetTLS a Clone.
func (u *Upstream) TLS() *tls.Config { return u.tls.Load() }

// SetTLS changes what connections are made with from now on.
func (u *Upstream) SetTLS(cfg *tls.Config) { u.tls.Store(cfg) }

// String names the upstream without its password.
func (u *Upstream) String() string {
	if u.sentinels != nil {
		return u.sentinels.String()
	}
	return u.Addr
}

// MarshalText does so in a log of JSON.
func (u *Upstream) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

// connect opens a connection that is logged in as id, on id's database and protocol. The error is an *Error, or the
// upstream's own refusal as a *Refused. Nothing that a client sent has been used up when it fails.
//
// If Sentinels tell the address, the server has said that it is the master, unless id may not ask; when it is replaced, the
// connection is closed.
//
// The connection to a cluster is one to all of its nodes.
func (u *Upstream) connect(ctx context.Context, id Identity) (net.Conn, error) {
	if u.cluster != nil {
		return u.connectCluster(ctx, id, false)
	}
	addr := u.Addr
	var err error
	if u.sentinels != nil {
		if addr, err = u.sentinels.current(ctx); err != nil {
			return nil, &Error{Addr: u.Addr, Err: err}
		}
	}
	return u.connectTo(ctx, addr, id)
}

// connectTo is connect for the server at addr.
func (u *Upstream) connectTo(ctx context.Context, addr string, id Identity) (net.Conn, error) {
	raw, err := u.open(ctx, u.Network, addr)
	if err != nil {
		return nil, &Error{Addr: addr, Err: err}
	}
	if u.sentinels != nil {
		tracked, err := u.sentinels.track(raw, addr)
		if err != nil {
			raw.Close()
			return nil, &Error{Addr: addr, Err: err}
		}
		raw = tracked
	}
	// The deadline covers TLS and login; a closed context ends both at once.
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	nc, err := u.secure(ctx, raw, addr)
	if err == nil {
		err = u.login(nc, addr, id)
	}
	if !stop() && err == nil {
		err = &Error{Addr: addr, Err: context.Cause(ctx)}
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return nc, nil
}

// open makes a plain connection.
func (u *Upstream) open(ctx context.Context, network, addr string) (net.Conn, error) {
	raw, err := u.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		peer.NewGuard(tcp, func() time.Duration { return lossBound }, func() { abort(tcp) }).Start() // ends with raw
	}
	return raw, nil
}

// abort ends a connection for its reader and its writer, who close it.
func abort(tcp *net.TCPConn) {
	tcp.SetLinger(0) // nothing more can be sent
	tcp.CloseRead()
	tcp.CloseWrite()
}

// secured is a TLS connection that closes at once, as a plain one does: tls.Conn's own Close may wait five seconds for room to
// say goodbye, and callers hold locks. CloseWrite does say it, and Redis takes it for the end of the requests.
type secured struct {
	*tls.Conn
	raw net.Conn
}

func (c *secured) Close() error { return c.raw.Close() }

// directly is how the bytes of an upstream connection are read and written: by its socket where that is all there is to it.
func directly(conn net.Conn) io.ReadWriter {
	plain := conn
	if c, ok := conn.(*serverConn); ok {
		plain = c.Conn
	}
	if s := socket.New(plain); s != nil {
		return s
	}
	return conn
}

// secure puts TLS around raw, if that is what connections are made with. The certificate must have the name that the
// configuration says, or else addr's host.
func (u *Upstream) secure(ctx context.Context, raw net.Conn, addr string) (net.Conn, error) {
	cfg := u.TLS()
	if cfg == nil {
		return raw, nil
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(addr)
	}
	nc := tls.Client(raw, cfg)
	if err := nc.HandshakeContext(ctx); err != nil {
		return nil, &Error{Addr: addr, Err: fmt.Errorf("TLS: %w", err)}
	}
	return &secured{Conn: nc, raw: raw}, nil
}
