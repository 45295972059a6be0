package locks_test

import (
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testwait"
)

// The client of a session lock closes while Redis refuses all writes for want of replicas: the lock
// is released as soon as Redis takes writes again.
func TestSessionLockIsReleasedAfterARefusal(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	direct := proxytest.GoRedis(t, server.Addr())
	c := proxytest.Dial(t, p.Addr)
	c.Lock("job 300 SESSION")
	direct.ConfigSet(proxytest.Ctx, "min-replicas-to-write", "1")
	c.Close()
	time.Sleep(500 * time.Millisecond)
	if direct.Exists(proxytest.Ctx, "job").Val() != 1 {
		t.Fatal("Redis has taken a write")
	}
	direct.ConfigSet(proxytest.Ctx, "min-replicas-to-write", "0")
	testwait.Until(t, "the lock is released", func() bool {
		return direct.Exists(proxytest.Ctx, "job").Val() == 0
	})
}
