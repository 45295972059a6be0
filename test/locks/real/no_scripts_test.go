package real_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

// Where Redis runs no scripts, or does not know what they call, the log says so at the start, and
// each lock command when it is sent. Its answer tells nothing of what the proxy has sent.
func TestRedisWithoutScripts(t *testing.T) {
	t.Parallel()
	const none, lacks = "-ERR this Redis runs no scripts (unknown command '",
		"-ERR this Redis does not know a command that the scripts of lock commands call"
	for renamed, want := range map[string]string{
		"EVALSHA": none + "EVALSHA'), and lock commands need them: see lockproxy check\r\n",
		"TIME":    lacks,
	} {
		t.Run(renamed, func(t *testing.T) {
			t.Parallel()
			server := testredis.Start(t, "--rename-command", renamed, "")
			log := &testredis.LogBuffer{}
			p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
				cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log})
			})
			var checked sync.WaitGroup
			ctx, cancel := context.WithCancel(t.Context())
			checked.Go(func() { p.Server.CheckUpstream(ctx) }) // ends with ctx
			testwait.Until(t, "the log says so", func() bool {
				return strings.Contains(log.String(), "[WARN]  lock commands are answered with errors") &&
					strings.Contains(log.String(), `missing="the server has no `+renamed+", for LOCK")
			})
			cancel()
			checked.Wait()
			c := proxytest.Dial(t, p.Addr)
			for _, command := range []string{
				"LOCK k 600", "LOCK k 600 WAIT 5", "LOCK k 600 SHARED", "LOCK k 600 OWNER me SESSION",
				"LOCKALL 600 2 {k}1 {k}2", "UNLOCK k 1", "UNLOCK k FORCE", "UNLOCKALL 1 1 k",
				"RELOCK k 1 600", "LOCKINFO k", "ONCE k 600", "ONCE k 600 WAIT 5", "DONE k 1 v",
				"FENCE k 1 SET k v",
			} {
				got := c.Do(command)
				if !strings.HasPrefix(got, want) {
					t.Errorf("%s: %q", command, got)
				}
			}
			c.Expect("SET k v", "+OK\r\n")
		})
	}
}

// A Redis that knows EVALSHA but not EVAL, by which the proxy sends a script that Redis lacks, is
// such a one as well.
func TestRedisWithoutEval(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t, "--rename-command", "EVAL", "")
	c := proxytest.Dial(t, proxytest.Start(t, server.URL(), nil).Addr)
	c.Expect("LOCK k 600", "-ERR this Redis runs no scripts (unknown command 'EVAL')…")
}
