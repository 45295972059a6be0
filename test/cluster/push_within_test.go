package cluster_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
	"lockproxy/proxy"
)

// A push that a node puts into the middle of a reply makes no client's reply another's.
func TestPushesWithinReplies(t *testing.T) {
	t.Parallel()
	cluster := testredis.StartCluster(t, 1, 0, "--enable-debug-command", "yes")
	p := proxytest.Start(t, cluster.URL(), func(cfg *proxy.Config) {
		cfg.Dedicated, cfg.UpstreamConns = false, 1
	})
	proxytest.PushedInto(t, p, cluster.Nodes[0], false)
}
