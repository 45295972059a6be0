package proxytest

import (
	"testing"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/testredis"
)

// LinkTo makes a link to a server that can be made bad, in the server's network.
func LinkTo(t testing.TB, server interface{ Addr() string }) *badlink.Link {
	t.Helper()
	link := badlink.NewOn(listen(t, server.Addr(), testredis.TCP), dial, server.Addr(), 1)
	t.Cleanup(link.Close)
	return link
}
