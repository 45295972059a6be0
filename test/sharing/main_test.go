// Package sharing_test is about homes and lanes: clients that share upstream connections notice
// nothing of each other.
package sharing_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

func TestMain(m *testing.M) { proxytest.Main(m, testredis.Upstreams, testredis.Clients) }
