//go:build linux

package proxytest

import (
	"testing"

	"lockproxy/internal/faults/relay"
	"lockproxy/internal/testredis"
)

// LinkTo makes a link to a server that can be made bad.
func LinkTo(t *testing.T, server *testredis.Server) *relay.Relay {
	t.Helper()
	link, err := relay.New(server.Addr(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(link.Close)
	return link
}
