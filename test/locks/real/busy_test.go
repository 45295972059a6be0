package real_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
	"lockproxy/proxy"
)

// A session lock whose holder leaves while Redis is busy with a script is released after the
// script, not only at its timeout.
func TestReleaseAfterBusyScript(t *testing.T) {
	t.Parallel()
	server, log := testredis.Start(t), &testredis.LogBuffer{}
	p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
		cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log})
	})
	admin := proxytest.Dial(t, server.Addr())
	admin.Expect("CONFIG SET lua-time-limit 10", "+OK\r\n")
	holder, busy := proxytest.Dial(t, p.Addr), proxytest.Dial(t, server.Addr())
	holder.Lock("job 600 SESSION")
	busy.Write(wire.Append(nil, "EVAL", "while true do end", "0"))
	testwait.Until(t, "Redis is busy", func() bool {
		return admin.Do("PING")[0] == '-'
	})
	holder.Close()
	testwait.Until(t, "the release is refused", func() bool {
		return strings.Contains(log.String(), "cannot release a lock whose holder has disconnected")
	})
	admin.Expect("SCRIPT KILL", "+OK\r\n")
	busy.Reply()
	next := proxytest.Dial(t, p.Addr)
	next.Lock("job 300 WAIT 300")
}
