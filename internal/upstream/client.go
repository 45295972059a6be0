package upstream

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"lockproxy/internal/resp"
)

// noMaintNotifications has go-redis ask for no notifications of Redis Enterprise.
var noMaintNotifications = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// Client returns a go-redis client for requests of the proxy's own, whose connections are logged in
// as id. It never sends anything twice, and each call is bounded by its own context.
func (u *Upstream) Client(id Identity) *redis.Client {
	id.Proto = 2
	return redis.NewClient(&redis.Options{
		Addr:                  u.Addr,
		Protocol:              2,
		MaxRetries:            -1,
		ReadTimeout:           -1, // the context's
		DisableIdentity:       true,
		PoolSize:              64, // most of them while replicas confirm locks
		MaxIdleConns:          16, // fewer of a busy user would be closed and opened all the time
		ConnMaxIdleTime:       30 * time.Second,
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := u.dial(ctx, Setup{Identity: id}, true)
			if err != nil {
				return nil, err
			}
			server, _, err := u.Prepare(ctx, conn, id.User)
			if err != nil {
				return nil, err
			}
			return u.own.add(conn, server), nil
		},
		DialerRetries:            1,
		MaintNotificationsConfig: noMaintNotifications,
	})
}

// The replies that go-redis reads are bounded, since it makes room for whatever a reply announces,
// and panics for more than a slice can have.
const (
	maxLine  = 1 << 20  // of a line, bytes; no error of Redis comes near it
	maxReply = 64 << 20 // of what is still to come of a reply, bytes
)

// ownConn is a connection of a Client. Its reading fails when a line or a reply is too long.
type ownConn struct {
	net.Conn
	scan    resp.Scanner
	server  Server
	of      *ownConns
	spoiled atomic.Bool // its server has refused a write as a replica
}

// ownConns are all that are open.
type ownConns struct {
	mu   sync.Mutex
	open map[*ownConn]struct{} // guarded by mu
}

func (s *ownConns) add(conn net.Conn, server Server) *ownConn {
	c := &ownConn{Conn: conn, scan: resp.Scanner{MaxLine: maxLine}, server: server, of: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[*ownConn]struct{}{}
	}
	s.open[c] = struct{}{}
	return c
}

// HasOwn reports whether a Client has a connection.
func (u *Upstream) HasOwn() bool {
	u.own.mu.Lock()
	defer u.own.mu.Unlock()
	return len(u.own.open) > 0
}

// CloseOwn closes the connections of Clients that lead to another server than new ones. It reports
// whether there were any.
func (u *Upstream) CloseOwn(to Server) (any bool) {
	u.own.mu.Lock()
	list := slices.Collect(maps.Keys(u.own.open))
	u.own.mu.Unlock()
	for _, c := range list {
		if to.Differs(c.server) {
			c.Close()
			any = true
		}
	}
	return any
}

// Close implements net.Conn.
func (c *ownConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return CloseAndWait(c.Conn)
}

// SyscallConn is for go-redis, which looks whether anything has come on an idle connection: then it
// cannot be used. It has no use for the socket: TLS may have read what has come.
func (c *ownConn) SyscallConn() (syscall.RawConn, error) {
	if c.spoiled.Load() || !isIdle(c.Conn, false) {
		return nil, errUnexpectedReply
	}
	return nothingCame{}, nil
}

// nothingCame is such a connection's socket, on which nothing has come. Nothing but Read is called.
type nothingCame struct{ syscall.RawConn }

func (nothingCame) Read(func(fd uintptr) (done bool)) error { return nil }

// Read implements net.Conn.
func (c *ownConn) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	for at := 0; at < n; {
		used, done, wrong := c.scan.Scan(p[at:n])
		if wrong != nil {
			return 0, errors.New(wrong.Error()) // go-redis tells only what an error wraps
		}
		if done && IsReadOnly(c.scan.Head()) {
			c.spoiled.Store(true)
		}
		at += used
	}
	if c.scan.Least() > maxReply {
		return 0, fmt.Errorf("a reply of more than %d bytes", maxReply)
	}
	return n, err
}
