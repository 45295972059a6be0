package locks_test

import (
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testredis"
)

// A killed proxy leaves its session locks for their timeout, never less.
func TestKilledProxyLeavesSessionLocks(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	dying, p := proxytest.StartProcess(t, "--upstream", server.URL()),
		proxytest.Start(t, server.URL(), nil)
	c, other := proxytest.Dial(t, dying.Addr), proxytest.Dial(t, p.Addr)
	c.Lock("job 1 SESSION")
	time.Sleep(500 * time.Millisecond) // renewed at least once
	other.Expect("LOCK job 300", "$-1\r\n")
	ttl := proxytest.GoRedis(t, server.Addr()).PTTL(proxytest.Ctx, "job").Val()
	dying.Cmd.Process.Kill()
	start := time.Now()
	other.Lock("job 300 WAIT 300")
	if took := time.Since(start); took < ttl-20*time.Millisecond {
		t.Errorf("taken %v after the proxy was killed, with %v to run", took, ttl)
	}
}
