package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
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
		PoolSize:              4,
		MaxIdleConns:          4, // otherwise a busy user's would be closed and opened all the time
		ConnMaxIdleTime:       30 * time.Second,
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if u.cluster != nil {
				return boundLines(u.dialCluster(ctx, Setup{Identity: id}, true))
			}
			return boundLines(u.Dial(ctx, Setup{Identity: id}))
		},
		DialerRetries:            1,
		MaintNotificationsConfig: noMaintNotifications,
	})
}

// What go-redis reads is bounded, since it makes room for whatever a reply announces, and panics
// for more than a slice can have.
const (
	maxLine  = 1 << 20  // of a line, bytes; no error of Redis comes near it
	maxReply = 64 << 20 // of what is still to come of a reply, bytes
)

// boundedConn is a connection whose reading fails when a line or a reply is too long.
type boundedConn struct {
	net.Conn
	scan resp.Scanner
}

// boundedSocket is a boundedConn that go-redis can check for a close by the upstream.
type boundedSocket struct {
	*boundedConn
	syscall.Conn
}

// boundLines makes a boundedConn of what a dial has returned.
func boundLines(conn net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	bounded := &boundedConn{Conn: conn, scan: resp.Scanner{MaxLine: maxLine}}
	if socket, ok := conn.(syscall.Conn); ok {
		return boundedSocket{bounded, socket}, nil
	}
	return bounded, nil
}

func (c *boundedConn) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	for at := 0; at < n; {
		used, _, wrong := c.scan.Scan(p[at:n])
		if wrong != nil {
			return 0, errors.New(wrong.Error()) // go-redis tells only what an error wraps
		}
		at += used
	}
	if c.scan.Least() > maxReply {
		return 0, fmt.Errorf("a reply of more than %d bytes", maxReply)
	}
	return n, err
}
