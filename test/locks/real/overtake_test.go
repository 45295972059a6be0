package real_test

import (
	"fmt"
	"testing"
	"time"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testwait"
	"lockproxy/lockcmd/keyname"
)

// A proxy that has been killed while clients waited there keeps nobody from a free lock forever.
func TestLockAfterAProxyThatHasEnded(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	other := proxytest.StartProcess(t, "--upstream", server.URL())
	holder, waiter := proxytest.Dial(t, p.Addr), proxytest.Dial(t, other.Addr)
	holder.Lock("job 300")
	waiter.Send("LOCK job 300 WAIT 300")
	proxytest.AwaitListed(t, holder, "job")
	other.Cmd.Process.Kill()
	other.Ends(t)
	server.Ask("PEXPIRE", "job", "1")
	testwait.Until(t, "the lock is free for others", func() bool {
		return holder.Do("LOCK job 300") != "$-1\r\n"
	})
}

// One that was seen before the upstream's clock was set back by an hour keeps nobody from it for an
// hour.
func TestLockAfterAProxyThatHasEndedAndAStepBack(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	c := proxytest.Dial(t, p.Addr)
	ahead := time.Now().Add(time.Hour).UnixMilli()
	server.Ask("SET", keyname.Record([]byte("job")), fmt.Sprintf(
		"v1 %d 0 0 0 0 0 released - 0 - gone:%d:0:%d\n", ahead*1000, ahead, ahead-1000))
	if token := c.Lock("job 300"); token != ahead*1000+1 {
		t.Errorf("token %d", token)
	}
	c.Expect("LOCKINFO job WAITERS", "*0\r\n")
}
