package proxytest

// Tests in virtual time have a network of their own. Where an address belongs to it, so does what
// is connected to that address.

import (
	"context"
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"

	"lockproxy/internal/test/testredis"
	"lockproxy/internal/test/testtls"
	"lockproxy/internal/test/virtualnet"
)

// dial connects to an address of either network.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if virtualnet.Has(addr) {
		return virtualnet.Dial(ctx, network, addr)
	}
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	var d net.Dialer
	nc, err := d.DialContext(ctx, network, addr)
	if p, ok := testProxies.Load(addr); ok && p.(*Proxy).tls && err == nil {
		secured := tls.Client(nc, &tls.Config{RootCAs: testtls.Common().Pool, ServerName: "localhost"})
		if err = secured.HandshakeContext(ctx); err != nil {
			nc.Close()
		}
		nc = secured
	}
	return nc, err
}

// listen listens in the network of addr, there by a transport.
func listen(t testing.TB, addr string, by testredis.Transport) net.Listener {
	t.Helper()
	network, at := "tcp", "127.0.0.1:0"
	switch {
	case virtualnet.Has(addr):
		return virtualnet.Listen()
	case by == testredis.Unix:
		network, at = "unix", testredis.SocketPath(t)
	}
	ln, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	return ln
}
