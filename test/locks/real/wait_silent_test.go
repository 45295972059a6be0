package real_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/proxy"
)

// So is a LOCKALL behind a waiter that relies on CLIENT TRACKING.
func TestLockAllBehindTrackedLockWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.DialTimeout = time.Second })
	direct := proxytest.GoRedis(t, server.Addr())
	direct.SetNX(proxytest.Ctx, "job", "random", time.Hour)
	first, behind := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	first.Send("LOCK job 300 WAIT 0")
	proxytest.AwaitWaiters(t, p, "job", 1)
	startPolls(t).awaitSilence(direct)
	pausedInTime(t, server, func() {
		behind.Send("LOCKALL 300 2 job other WAIT 1")
		proxytest.AwaitWaiters(t, p, "job", 2, behind)
	}, behind)
}

// While a master is missing, those behind a waiting LOCKALL are told so, whichever of its locks
// they want.
func TestLockAllWhileTheMasterIsMissing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	sentinel := testredis.StartSentinel(t, server.Addr())
	p := proxytest.Start(t, "redis+sentinel://"+sentinel.Addr()+"/mymaster", nil)
	holder, first := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	holder.Lock("b 600")
	first.Send("LOCKALL 600 2 a b WAIT 0")
	proxytest.AwaitWaiters(t, p, "b", 1)
	behind := proxytest.Dial(t, p.Addr)
	behind.Expect("PING", "+PONG\r\n")
	behind.Send("LOCK b 600 WAIT 10")
	proxytest.AwaitWaiters(t, p, "b", 2)
	server.Kill()
	if got := behind.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
		t.Errorf("%q, but the master is missing", got)
	}
}
