package passthrough

import (
	"context"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client returns a go-redis client for requests of the proxy's own, whose connections are logged in as id. It never sends
// anything twice, and each call is bounded by its own context.
func (u *Upstream) Client(id Identity) *redis.Client {
	id.Proto = 2
	return redis.NewClient(&redis.Options{
		Addr:                  u.Addr,
		Protocol:              2,
		MaxRetries:            -1,
		ReadTimeout:           -1, // the context's
		DisableIdentity:       true,
		PoolSize:              4,
		MaxIdleConns:          4, // else a busy user's would be closed and opened all the time, which takes long if the upstream is far away
		ConnMaxIdleTime:       30 * time.Second,
		ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if u.cluster != nil {
				return u.connectCluster(ctx, id, true)
			}
			return u.connect(ctx, id)
		},
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}
