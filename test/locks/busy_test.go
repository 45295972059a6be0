package locks_test

import (
	"testing"
	"time"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/resp"
	"lockproxy/internal/testwait"
)

// A session lock whose holder leaves while Redis is busy with a script is released after the
// script, not only at its timeout.
func TestReleaseAfterBusyScript(t *testing.T) {
	t.Parallel()
	server, p := proxytest.StartBoth(t)
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("CONFIG SET lua-time-limit 10", "+OK\r\n")
	holder, busy := proxytest.Dial(t, p.Addr), proxytest.Dial(t, server.Addr())
	holder.Lock("job 60 SESSION")
	busy.Write(resp.AppendCommand(nil, "EVAL", "while true do end", "0"))
	testwait.Until(t, "Redis is busy", func() bool {
		return admin.Do("PING")[0] == '-'
	})
	holder.Close()
	time.Sleep(300 * time.Millisecond) // the release is refused meanwhile
	admin.Expect("SCRIPT KILL", "+OK\r\n")
	busy.Reply()
	next := proxytest.Dial(t, p.Addr)
	next.Lock("job 30 WAIT 2")
}
