package lockproxy_test

import (
	"testing"
	"time"

	"lockproxy/internal/resp"
)

// A session lock whose holder leaves while Redis is busy with a script is released once it isn't, not only at its timeout.
func TestReleaseAfterBusyScript(t *testing.T) {
	server, p := startBoth(t)
	admin := dial(t, server.Addr())
	admin.expect("CONFIG SET lua-time-limit 10", "+OK\r\n")
	holder, busy := dial(t, p.addr), dial(t, server.Addr())
	holder.lock("job 60 SESSION")
	busy.Write(resp.AppendCommand(nil, "EVAL", "while true do end", "0"))
	eventually(t, 5*time.Second, "Redis is busy", func() bool { return admin.do("PING")[0] == '-' })
	holder.Close()
	time.Sleep(300 * time.Millisecond) // the release is refused meanwhile
	admin.expect("SCRIPT KILL", "+OK\r\n")
	busy.reply()
	next := dial(t, p.addr)
	next.lock("job 30 WAIT 2")
}
