package real_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// A killed proxy leaves its session locks for their timeout, never less.
func TestKilledProxyLeavesSessionLocks(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	dying, p := proxytest.StartProcess(t, "--upstream", server.URL()),
		proxytest.Start(t, server.URL(), nil)
	c, other := proxytest.Dial(t, dying.Addr), proxytest.Dial(t, p.Addr)
	c.Lock("job 300 SESSION")
	until := server.Ask("GET", "job")
	dying.Cmd.Process.Kill()
	dying.Ends(t)
	c.Closed()
	other.Expect("LOCK job 300", "$-1\r\n")
	if got := server.Ask("GET", "job"); got != until {
		t.Errorf("the lock ran until %s, and runs until %s", until, got)
	}
	server.Ask("PEXPIRE", "job", "1")
	other.Lock("job 300 WAIT 300")
}
