package real_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// The client of a session lock closes while Redis refuses all writes for want of replicas: the lock
// is released as soon as Redis takes writes again.
func TestSessionLockIsReleasedAfterARefusal(t *testing.T) {
	t.Parallel()
	server, log := testredis.Start(t), &testredis.LogBuffer{}
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log})
	})
	direct := proxytest.GoRedis(t, server.Addr())
	c := proxytest.Dial(t, p.Addr)
	c.Lock("job 300 SESSION")
	direct.ConfigSet(proxytest.Ctx, "min-replicas-to-write", "1")
	c.Close()
	testwait.Until(t, "the release is refused", func() bool {
		return strings.Contains(log.String(), "cannot release a lock whose holder has disconnected")
	})
	if direct.Exists(proxytest.Ctx, "job").Val() != 1 {
		t.Fatal("Redis has taken a write")
	}
	direct.ConfigSet(proxytest.Ctx, "min-replicas-to-write", "0")
	testwait.Until(t, "the lock is released", func() bool {
		return direct.Exists(proxytest.Ctx, "job").Val() == 0
	})
}
