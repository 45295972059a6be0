// Package cluster_test is lockproxy in front of a Redis Cluster.
package cluster_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

func TestMain(m *testing.M) { proxytest.Main(m, testredis.Upstreams, testredis.Clients) }
