package cluster_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"lockproxy/internal/test/testredis"
)

// severalServers is what a proxy can stand in front of, with links.
type severalServers struct {
	url     string
	servers []*testredis.Server
	at      *testredis.Server // has the keys of tag
	tag     string
	cluster *testredis.Cluster // nil if it is none
}

// startBothKinds starts a cluster of three masters, and a master with a replica and a Sentinel that
// never replaces it, all a round trip away.
func startBothKinds(t *testing.T, roundTrip time.Duration,
	args ...string) map[string]severalServers {
	t.Helper()
	c := testredis.StartLinkedCluster(t, roundTrip, 3, 0, args...)
	o := testredis.GroupOptions{Linked: true, RoundTrip: roundTrip, Replicas: 1, Sentinels: 1,
		SentinelLines: []string{"sentinel down-after-milliseconds mymaster 60000"}}
	if i := slices.Index(args, "--requirepass"); i >= 0 {
		o.Password, args = args[i+1], slices.Delete(slices.Clone(args), i, i+2)
	}
	o.ServerArgs = args
	g := testredis.StartGroup(t, o)
	tag := "{" + tagOf(t, c, c.Nodes[1]) + "}"
	return map[string]severalServers{
		"cluster":  {c.URL(), c.Nodes, c.Nodes[1], tag, c},
		"sentinel": {g.URL(), g.Servers[:1], g.Servers[0], tag, nil},
	}
}

// tagOf is a hash tag of which a node has the slot.
func tagOf(t *testing.T, c *testredis.Cluster, node *testredis.Server) string {
	t.Helper()
	for i := 0; ; i++ {
		if tag := fmt.Sprint("tag", i); c.MasterOf(c.Slot(tag)) == node {
			return tag
		}
	}
}
