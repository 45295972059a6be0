package upstream

import (
	"crypto/tls"
	"net"
	"syscall"
	"testing"

	"lockproxy/internal/test/testtls"
)

// A connection within one machine is there before package net asks for it, so that nothing waits
// for the scheduler. Otherwise other clients' requests would overtake the first one of a new
// client.
func TestConnectFirst(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialer := net.Dialer{Control: func(network, addr string, conn syscall.RawConn) error {
		if err := connectFirst(network, addr, conn); err != nil {
			t.Error(err)
		}
		conn.Control(func(fd uintptr) {
			if _, err := syscall.Getpeername(int(fd)); err != nil {
				t.Errorf("package net finds a socket that is not connected: %v", err)
			}
		})
		return nil
	}}
	conn, err := dialer.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()

	for _, addr := range []string{"/run/redis.sock", "[fe80::1%lo]:6379"} {
		if err := connectFirst("", addr, nil); err != nil {
			t.Errorf("%s is not left to package net: %v", addr, err)
		}
	}
}

// The certificate of a server must be for the host that the proxy connects to, unless another name
// is configured.
func TestNameOfACertificate(t *testing.T) {
	ca := testtls.NewAuthority(t)
	for _, test := range []struct {
		cert testtls.Pair
		name string // that is configured
		good bool
	}{
		{ca.Issue(t, "redis"), "", true}, {ca.IssueName(t, "redis"), "", false},
		{ca.IssueName(t, "redis"), "redis", true}, {ca.Issue(t, "redis"), "other", false},
	} {
		u := &Upstream{Network: "tcp", Addr: playing(t, &tls.Config{
			Certificates: []tls.Certificate{test.cert.Cert}, SessionTicketsDisabled: true,
		}, round{1, "+PONG\r\n"}, round{2, "-NOPERM no\r\n-NOPERM no\r\n"})}
		u.SetTLS(&tls.Config{RootCAs: ca.Pool, ServerName: test.name})
		conn, _, err := u.DialKnown(t.Context(), Identity{})
		if err == nil {
			conn.Close()
		}
		if (err == nil) != test.good {
			t.Errorf("for %q, with the name %q: %v", test.cert.Cert.Leaf.DNSNames, test.name, err)
		}
	}
}
