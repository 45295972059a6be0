//go:build faults

package lockproxy_test

import (
	"testing"
	"time"
)

// A waiter that was given a lock dies while Redis is busy with a script: its lock is released once the script has ended.
func TestFaultOrphanMeetsBusyScript(t *testing.T) {
	server, p := startBoth(t, "--lua-time-limit", "50")
	direct := goRedis(t, server.Addr())
	holder, mortal, other := dial(t, p.addr), dial(t, p.addr), dial(t, p.addr)
	other.do("PING")
	holder.lock("job 30")
	mortal.send("LOCK job 60 WAIT 0 SESSION")
	attackWaits(t, p, "job", 1)
	holder.expect("UNLOCK job", ":1\r\n")
	busy := make(chan struct{})
	go func() { // ends by SCRIPT KILL
		defer close(busy)
		direct.Eval(ctx, "while true do end", nil)
	}()
	time.Sleep(200 * time.Millisecond)
	mortal.Close()
	time.Sleep(300 * time.Millisecond)
	if err := direct.ScriptKill(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	<-busy
	if got := other.do("LOCK job 1 WAIT 4"); got[0] != ':' {
		t.Errorf("the lock of a waiter that has died stays: %q", got)
	}
}
