package locks_test

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
	"lockproxy/proxy"
)

// The first waiter is answered when its wait is over, even while Redis is silent, and not that
// another client holds the lock. A lock that its last poll takes later is released.
func TestWaitEndsWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.DialTimeout = time.Second })
	idle, held, owed, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	for _, c := range []*proxytest.Conn{idle, held, owed} {
		c.Expect("PING", "+PONG\r\n")
	}
	other.Lock("held 2")
	held.Send("LOCK held 60 WAIT 1.5")
	proxytest.AwaitWaiters(t, p, "held", 1)
	server.Pause()
	start := time.Now()
	within := func(c *proxytest.Conn, want string, bound time.Duration) {
		t.Helper()
		got, err := c.TryReply()
		if took := time.Since(start); err != nil || !strings.HasPrefix(got, "-UPSTREAM "+want) {
			t.Errorf("after %v: %q, %v; want UPSTREAM %s within %v", took, got, err, want, bound)
		}
	}
	// Redis can't say whether a client that comes only now must log in.
	newcomer := proxytest.Dial(t, p.Addr)
	newcomer.Send("LOCK new 60 WAIT 1")
	idle.Send("LOCK free 60 WAIT 1")
	owed.Send("GET x", "LOCK owed 60 WAIT 0.5")
	within(idle, "has not answered in time", 2*time.Second)
	within(newcomer, "has not answered in time", 2*time.Second)
	idle.Send("LOCK more 60 WAIT 0.5", "PING") // none piles up after the late one
	within(idle, "does not answer", 4*time.Second)
	within(held, "", 4*time.Second)
	if owed.Arrived() {
		t.Errorf("%q came before the answer to GET", owed.Reply())
	}
	server.Resume()
	if got := idle.Reply(); got != "+PONG\r\n" {
		t.Errorf("the command after them: %q", got)
	}
	if got := owed.Reply(); got != "$-1\r\n" {
		t.Errorf("GET: %q", got)
	}
	if got := owed.Reply(); got[0] != ':' { // it had to wait for GET's reply, and then had its own
		t.Errorf("LOCK after GET: %q", got)
	}
	next := proxytest.Dial(t, p.Addr)
	for _, key := range []string{"new", "free", "more", "held"} {
		next.Lock(key + " 1 WAIT 3")
	}
	idle.Lock("again 5 WAIT 1")
}

// So is a LOCKALL behind a waiter that relies on CLIENT TRACKING.
func TestLockAllBehindTrackedLockWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	p := proxytest.Start(t, server.URL(), func(c *proxy.Config) { c.DialTimeout = time.Second })
	direct := proxytest.GoRedis(t, server.Addr())
	direct.SetNX(proxytest.Ctx, "job", "random", time.Minute)
	first, behind := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	first.Send("LOCK job 30 WAIT 0")
	proxytest.AwaitWaiters(t, p, "job", 1)
	awaitSilence(t, direct)
	behind.Send("LOCKALL 30 2 job other WAIT 1")
	proxytest.AwaitWaiters(t, p, "job", 2)
	server.Pause()
	if got := behind.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
		t.Errorf("%q, but Redis is silent", got)
	}
	server.Resume()
}

// While a master is missing, those behind a waiting LOCKALL are told so, whichever of its locks
// they want.
func TestLockAllWhileTheMasterIsMissing(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	sentinel := testredis.StartSentinel(t, server.Addr())
	p := proxytest.Start(t, "redis+sentinel://"+sentinel.Addr()+"/mymaster", nil)
	holder, first := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr)
	holder.Lock("b 60")
	first.Send("LOCKALL 60 2 a b WAIT 0")
	proxytest.AwaitWaiters(t, p, "b", 1)
	behind := proxytest.Dial(t, p.Addr)
	behind.Expect("PING", "+PONG\r\n")
	behind.Send("LOCK b 60 WAIT 2")
	proxytest.AwaitWaiters(t, p, "b", 2)
	server.Kill()
	if got := behind.Reply(); !strings.HasPrefix(got, "-UPSTREAM ") {
		t.Errorf("%q, but the master is missing", got)
	}
}
