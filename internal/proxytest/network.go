package proxytest

// Tests in virtual time have a network of their own. Where an address belongs to it, so does what
// is connected to that address.

import (
	"context"
	"net"
	"testing"

	"lockproxy/internal/virtualnet"
)

// dial connects to an address of either network.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if virtualnet.Has(addr) {
		return virtualnet.Dial(ctx, network, addr)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, addr)
}

// listen listens in the network of addr.
func listen(t testing.TB, addr string) net.Listener {
	t.Helper()
	if virtualnet.Has(addr) {
		return virtualnet.Listen()
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return ln
}
