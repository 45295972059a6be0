package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/pires/go-proxyproto"

	"lockproxy/internal/resp"
	"lockproxy/internal/socket"
)

// wrap wraps a new connection in what it begins with: a PROXY header if it comes from a network
// that sends one, then TLS. It runs on the accepting goroutine, so it reads nothing: see handshake.
func (cfg *Config) wrap(raw net.Conn) net.Conn {
	nc := raw
	if cfg.fromBalancer(raw.RemoteAddr()) {
		nc = proxyproto.NewConn(nc, proxyproto.WithPolicy(proxyproto.REQUIRE),
			proxyproto.SetReadHeaderTimeout(0)) // handshake bounds it
	}
	if cfg.TLS != nil {
		nc = socket.Server(nc, cfg.TLS)
	}
	return nc
}

// fromBalancer reports whether a peer is in a network whose connections begin with a PROXY header.
// From any other, a header is a request like the rest: no client can choose the address that it is
// known by.
func (cfg *Config) fromBalancer(peer net.Addr) bool {
	tcp, ok := peer.(*net.TCPAddr)
	if !ok {
		return false
	}
	addr := tcp.AddrPort().Addr().Unmap().WithZone("")
	return slices.ContainsFunc(cfg.ProxyProtocolFrom, func(network netip.Prefix) bool {
		return network.Contains(addr)
	})
}

// handshake does what comes before the first request, within the server's HandshakeTimeout. It
// reports whether the client may go on.
func (s *Server) handshake(ctx context.Context, c *client) bool {
	if !c.wrapped() {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.HandshakeTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.raw.Close() })
	defer stop()

	what, err := "PROXY header", c.readHeader()
	if conn, ok := c.Conn.(*socket.TLS); ok && err == nil {
		what, err = "TLS handshake", conn.HandshakeContext(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("it was not done within " + s.cfg.HandshakeTimeout.String())
		}
		if !c.drains() {
			s.logHandshake(what, c.holder.Addr, err)
		}
		return false
	}
	c.holder.Addr = clientAddr(c.RemoteAddr())
	return true
}

// readHeader reads the PROXY header, if the client's network is one that sends it.
func (c *client) readHeader() error {
	inner := c.Conn
	conn, isTLS := inner.(*socket.TLS)
	if isTLS {
		inner = conn.Raw()
	}
	behind, ok := inner.(*proxyproto.Conn)
	if !ok {
		return nil
	}
	_, err := behind.Read(nil) // reads the header and nothing behind it
	if errors.Is(err, proxyproto.ErrNoProxyProtocol) && c.hasClosed() {
		return io.EOF // a balancer's health check
	}
	if errors.Is(err, proxyproto.ErrNoProxyProtocol) && !isTLS {
		// nothing was written before: this does not wait
		c.raw.Write([]byte("-ERR expected a PROXY header, since this address is one of " +
			"--proxy-protocol-from\r\n"))
	}
	return err
}

// hasClosed reports whether the client has closed, and nothing that it has sent is left to read.
func (c *client) hasClosed() bool {
	n, err := c.peek()
	return n == 0 && err == nil
}

// logHandshake says why a client was sent away before its first request.
func (s *Server) logHandshake(what, addr string, err error) {
	log := s.log.Warn
	if errors.Is(err, io.EOF) {
		log = s.log.Debug
	}
	log("a client was disconnected before its first request",
		"client", addr, "failed", what, "error", err)
}

// logProtocol says in the log what a client cannot say that is sent away for what it has sent: one
// that speaks TLS shows its user an error of TLS.
func (s *Server) logProtocol(addr string, err error) {
	var protocol *resp.ProtocolError
	if errors.As(err, &protocol) && protocol.TLS {
		s.log.Warn("a client speaks TLS, and this port does not: rediss:// needs --tls-cert",
			"client", addr)
	}
}

// ParseNetworks reads a list of networks and single addresses, separated by commas.
func ParseNetworks(list string) (networks []netip.Prefix, err error) {
	for _, word := range strings.Split(list, ",") {
		word = strings.TrimSpace(word)
		network, err := netip.ParsePrefix(word)
		if err != nil {
			addr, addrErr := netip.ParseAddr(word)
			if addrErr != nil || addr.Zone() != "" {
				return nil, errors.New("not a network: \"" + word +
					"\"; want for example 10.0.0.0/8 or 192.168.1.7")
			}
			network = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen())
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}
