package real_test

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testwait"
	"lockproxy/proxy"
)

func TestEvictionIsWarnedOf(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]bool{"noeviction": false, "volatile-lru": true} {
		server := testredis.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", policy)
		log := &testredis.LogBuffer{}
		p := proxytest.Start(t, server.URL(), func(cfg *proxy.Config) {
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: log, Level: hclog.Debug})
			cfg.Locks.RequireFsync = true // what is said of it comes last
		})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { // ends with ctx
			defer close(ended)
			p.Server.CheckUpstream(ctx)
		}()
		testwait.Until(t, "all has been said", func() bool {
			return strings.Contains(log.String(), "require-fsync")
		})
		cancel()
		testwait.For(t, "the end of the check", ended)
		if got := strings.Contains(log.String(), "may evict locks"); got != want {
			t.Errorf("%s: the log says\n%s", policy, log.String())
		}
	}
}
