//go:build faults

package faults_test

import (
	"testing"
	"time"

	"lockproxy/internal/proxytest"
)

// A waiter that was given a lock dies while Redis is busy with a script: its lock is released once
// the script has ended.
func TestFaultAbandonedLockMeetsBusyScript(t *testing.T) {
	server, p := proxytest.StartBoth(t, "--lua-time-limit", "50")
	direct := proxytest.GoRedis(t, server.Addr())
	holder, mortal, other := proxytest.Dial(t, p.Addr), proxytest.Dial(t, p.Addr),
		proxytest.Dial(t, p.Addr)
	other.Do("PING")
	holder.Lock("job 30")
	mortal.Send("LOCK job 60 WAIT 0 SESSION")
	proxytest.AwaitWaiters(t, p, "job", 1)
	holder.Expect("UNLOCK job", ":1\r\n")
	busy := make(chan struct{})
	go func() { // ends by SCRIPT KILL
		defer close(busy)
		direct.Eval(proxytest.Ctx, "while true do end", nil)
	}()
	time.Sleep(200 * time.Millisecond)
	mortal.Close()
	time.Sleep(300 * time.Millisecond)
	if err := direct.ScriptKill(proxytest.Ctx).Err(); err != nil {
		t.Fatal(err)
	}
	<-busy
	if got := other.Do("LOCK job 1 WAIT 4"); got[0] != ':' {
		t.Errorf("a dead waiter's lock stays: %q", got)
	}
}
