package locks_test

import (
	"strings"
	"testing"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/testwait"
)

// A proxy that has been killed while clients waited there keeps nobody from a free lock forever.
func TestLockAfterAProxyThatHasEnded(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	other := proxytest.StartProcess(t, "--upstream", server.URL())
	holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, other.Addr)
	holder.Lock("job 300")
	waiter.Send("LOCK job 300 WAIT 300")
	awaitListed(t, holder, "job")
	other.Cmd.Process.Kill()
	other.Ends(t)
	server.Ask("PEXPIRE", "job", "1")
	testwait.Until(t, "the lock is free for others", func() bool {
		return holder.Do("LOCK job 300") != "$-1\r\n"
	})
}

// awaitListed waits until a proxy can learn from the upstream that clients wait at another.
func awaitListed(t *testing.T, c *proxytest.Conn, lock string) {
	t.Helper()
	testwait.Until(t, "the waiter is known", func() bool {
		return strings.Contains(c.Do("LOCKINFO "+lock+" WAITERS"), "proxy")
	})
}
