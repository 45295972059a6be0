package testredis

import (
	"net"
	"testing"
	"time"

	"lockproxy/internal/test/badlink"
	"lockproxy/internal/test/testtls"
)

// StartLink makes a link to addr that lasts as long as the test. Proxies reach it by a transport
// that is chosen.
func StartLink(t testing.TB, addr string) *badlink.Link { return StartFarLink(t, addr, 0) }

// StartFarLink makes a link whose far end is away by a round trip.
func StartFarLink(t testing.TB, addr string, roundTrip time.Duration) *badlink.Link {
	t.Helper()
	return startLink(t, addr, roundTrip, ChooseTransport(t, Upstreams, TLS, Unix))
}

func startLink(t testing.TB, addr string, roundTrip time.Duration, by Transport) *badlink.Link {
	t.Helper()
	l, err := badlink.New(addr, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	l.Away(roundTrip / 2)
	network, near := "tcp", "127.0.0.1:0"
	switch by {
	case TCP:
		return l
	case Unix:
		network, near = "unix", SocketPath(t)
	}
	ln, err := net.Listen(network, near)
	if err != nil {
		t.Fatal(err)
	}
	reachBy(t, l.Addr(), way{by, ln.Addr().String()})
	if by == TLS {
		ln = badlink.TLS(ln, testtls.ServerConfig())
	}
	l.Also(ln)
	return l
}
