package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/pires/go-proxyproto"
)

// wrap puts around a new connection what it has to begin with: a PROXY header if it comes from a network that sends one, then
// TLS. Nothing is read yet, since this runs on the accepting goroutine; handshake does that on the session's own.
func (s *Server) wrap(raw net.Conn) net.Conn {
	nc := raw
	if s.fromBalancer(raw.RemoteAddr()) {
		nc = proxyproto.NewConn(nc, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(0)) // handshake bounds it
	}
	if s.cfg.TLS != nil {
		nc = tls.Server(nc, s.cfg.TLS)
	}
	return nc
}

// fromBalancer reports whether a peer is in a network whose connections begin with a PROXY header. From any other a header
// is a request like the rest, so that nobody can choose the address that he is known by.
func (s *Server) fromBalancer(peer net.Addr) bool {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return false
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	for _, network := range s.cfg.ProxyProtocolFrom {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// handshake does what comes before the first request, within HandshakeTimeout. It reports whether the client may go on.
func (s *session) handshake() bool {
	if s.nc == s.raw {
		return true
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.server.cfg.HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { s.raw.Close() })
	defer stop()

	what, err := "PROXY header", s.readHeader()
	if conn, ok := s.nc.(*tls.Conn); ok && err == nil {
		what, err = "TLS handshake", conn.HandshakeContext(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("not done within " + s.server.cfg.HandshakeTimeout.String())
		}
		if !s.drains() {
			s.server.logHandshake(what, s.holder.Addr, err)
		}
		return false
	}
	s.holder.Addr = clientAddr(s.nc.RemoteAddr())
	return true
}

// readHeader reads the PROXY header, if the client's network is one that sends it.
func (s *session) readHeader() error {
	inner := s.nc
	conn, isTLS := inner.(*tls.Conn)
	if isTLS {
		inner = conn.NetConn()
	}
	behind, ok := inner.(*proxyproto.Conn)
	if !ok {
		return nil
	}
	_, err := behind.Read(nil) // reads the header and nothing behind it
	if errors.Is(err, proxyproto.ErrNoProxyProtocol) && s.hasClosed() {
		return io.EOF // a balancer that checks whether somebody listens
	}
	if errors.Is(err, proxyproto.ErrNoProxyProtocol) && !isTLS {
		s.raw.SetWriteDeadline(time.Now().Add(time.Second))
		s.raw.Write([]byte("-ERR expected a PROXY header, since this address is one of --proxy-protocol-from\r\n"))
	}
	return err
}

// hasClosed reports whether the client has closed, for one that is sent away in any case.
func (s *session) hasClosed() bool {
	s.raw.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := s.raw.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

// logGreeting says why a client was sent away before its first request: once a second at most, since anybody can cause it.
func (s *Server) logHandshake(what, addr string, err error) {
	now := time.Now().Unix()
	if errors.Is(err, io.EOF) || s.handshakeLogged.Swap(now) == now {
		s.log.Debug("client sent away", "client", addr, "failed", what, "error", err)
		return
	}
	s.log.Warn("client sent away before its first request; others within this second are logged at debug level", "client", addr, "failed", what, "error", err)
}

// clientAddr is host:port, or "unix" for a client without an address.
func clientAddr(addr net.Addr) string {
	text := addr.String()
	if text == "" || strings.ContainsAny(text, " \n@/") {
		return "unix"
	}
	return text
}

// ParseNetworks reads a list of networks and single addresses, separated by commas.
func ParseNetworks(list string) (networks []netip.Prefix, err error) {
	for _, word := range strings.Split(list, ",") {
		word = strings.TrimSpace(word)
		network, err := netip.ParsePrefix(word)
		if err != nil {
			addr, addrErr := netip.ParseAddr(word)
			if addrErr != nil || addr.Zone() != "" {
				return nil, errors.New("not a network: \"" + word + "\"; want for example 10.0.0.0/8 or 192.168.1.7")
			}
			network = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}
