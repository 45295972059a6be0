// Package relay_test shows that the proxy relays what Redis says: for every command, in every
// state, by every transport, for hostile and slow clients, and while the upstream is away.
package relay_test

import (
	"testing"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/testredis"
)

// Many tests here are about TCP connections of clients.
func TestMain(m *testing.M) { proxytest.Main(m, testredis.Upstreams) }
