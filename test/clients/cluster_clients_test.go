//go:build clients

package clients_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// The same programs, which know nothing of clusters, do the same on a cluster of six nodes. They
// want WAIT to find no replicas.
func TestClusterClients(t *testing.T) {
	url := testredis.StartCluster(t, 6, 0).URL()
	// One after the other, since they use the same owners.
	testClients(t, proxytest.Binary(t), func(*testing.T) string { return url },
		"LOCKPROXY_TEST_CLUSTER=1")
}
