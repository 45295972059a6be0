package proxytest

import (
	"testing"

	"lockproxy/internal/test/testredis"
)

// AnotherMaster is a master of c that is not but; nil if there is none.
func AnotherMaster(c *testredis.Cluster, but *testredis.Server) *testredis.Server {
	for _, s := range c.Nodes {
		if s != but && s.Role() == "master" {
			return s
		}
	}
	return nil
}

// Lasting is the servers that several tests use.
var Lasting testredis.Lasting

// SixNodes is a cluster of three masters with a replica each, for tests that leave it as it was but
// for its keys.
func SixNodes(t testing.TB) *testredis.Cluster {
	return Lasting.Cluster(t, 3, 1, "--cluster-node-timeout", "5000")
}
