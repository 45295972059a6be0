//go:build faults

package faults_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// A waiter that was given a lock dies while Redis is busy with a script: its lock is released once
// the script has ended.
func TestFaultAbandonedLockMeetsBusyScript(t *testing.T) {
	server := testredis.Start(t, "--lua-time-limit", "50")
	log := &testredis.LogBuffer{}
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log})
	})
	direct := proxytest.GoRedis(t, server.Addr())
	holder, mortal, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	other.Do("PING")
	holder.Lock("job 600")
	mortal.Send("LOCK job 600 WAIT 0 SESSION")
	proxytest.AwaitWaiters(t, p, "job", 1)
	holder.Expect("UNLOCK job", ":1\r\n")
	testwait.Until(t, "the waiter is given the lock", mortal.Arrived)
	busy := make(chan struct{})
	go func() { // ends by SCRIPT KILL
		defer close(busy)
		direct.Eval(proxytest.Ctx, "while true do end", nil)
	}()
	testwait.Until(t, "Redis is busy",
		func() bool { return strings.HasPrefix(server.Ask("PING"), "-BUSY ") })
	mortal.Close()
	testwait.Until(t, "Redis is too busy to release the lock",
		func() bool { return strings.Contains(log.String(), "cannot release a lock") })
	if err := direct.ScriptKill(proxytest.Ctx).Err(); err != nil {
		t.Fatal(err)
	}
	<-busy
	if got := other.Do("LOCK job 600 WAIT 0"); got[0] != ':' {
		t.Errorf("a dead waiter's lock stays: %q", got)
	}
}
