package upstream

// Connections to one server are made here.

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"lockproxy/internal/cluster"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/peer"
	"lockproxy/internal/socket"
)

// defaultLossBound is for Upstream.LossBound: the kernel's own patience is 15 minutes.
const defaultLossBound = time.Minute

// dialer bounds the attempts whose contexts don't. The Guard sets keepalive a second later.
var dialer = net.Dialer{Timeout: time.Hour, KeepAlive: -1, Control: connectFirst}

// connectFirst connects a new socket before package net does. A connection within one machine is
// there at once, and then package net does not wait for it: requests that other clients send
// meanwhile would overtake the first one of a new client. Package net repeats what fails here.
func connectFirst(_, addr string, conn syscall.RawConn) error {
	to, err := netip.ParseAddrPort(addr)
	if err != nil || to.Addr().Zone() != "" {
		return nil // a Unix socket, or for package net to look up
	}
	var sockaddr syscall.Sockaddr
	if ip := to.Addr(); ip.Is4() {
		sockaddr = &syscall.SockaddrInet4{Port: int(to.Port()), Addr: ip.As4()}
	} else {
		sockaddr = &syscall.SockaddrInet6{Port: int(to.Port()), Addr: ip.As16()}
	}
	return conn.Control(func(fd uintptr) { syscall.Connect(int(fd), sockaddr) })
}

// dialServer is Dial for the server at addr, which is sent setup.
func (u *Upstream) dialServer(
	ctx context.Context, addr string, setup [][]string,
) (net.Conn, error) {
	raw, err := u.connect(ctx, u.Network, addr)
	if err != nil {
		return nil, &Error{Addr: addr, Err: err}
	}
	if u.sentinels != nil {
		tracked, err := u.sentinels.track(raw, addr)
		if err != nil {
			raw.Close()
			return nil, &Error{Addr: addr, Err: err}
		}
		raw = tracked
	}
	// The deadline covers TLS and login; a closed context ends both at once.
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	nc, err := u.secure(ctx, raw, addr)
	if err == nil {
		err = u.login(nc, addr, setup)
	}
	if !stop() && err == nil {
		err = &Error{Addr: addr, Err: context.Cause(ctx)}
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return nc, nil
}

// connect makes a plain connection.
func (u *Upstream) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	dial := u.Dialer
	if dial == nil {
		dial = dialer.DialContext
	}
	raw, err := dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	if tcp, ok := raw.(*net.TCPConn); ok {
		bound := cmp.Or(u.LossBound, defaultLossBound)
		// It ends with raw.
		peer.NewGuard(tcp, func() time.Duration { return bound }, func() { abort(tcp) }).Start()
	}
	return raw, nil
}

// abort ends a connection for its reader and its writer, who close it.
func abort(tcp *net.TCPConn) {
	tcp.SetLinger(0) // nothing more can be sent
	tcp.CloseRead()
	tcp.CloseWrite()
}

// CloseAndWait closes an upstream connection, and returns when nothing of it runs any more: that to a
// cluster has goroutines. Close alone does not wait.
func CloseAndWait(conn net.Conn) error {
	loopguard.MayWait()
	err := conn.Close()
	if c, ok := conn.(*cluster.Conn); ok {
		c.Wait()
	}
	return err
}

// Raw is how the bytes of an upstream connection are read and written: by its socket, if it has one.
func Raw(conn net.Conn) io.ReadWriter {
	if s := socket.New(conn); s != nil {
		return s
	}
	return conn
}

// secure puts TLS around raw, if the upstream has it. The certificate must have the name that the
// configuration says, or otherwise addr's host. Instead of an address, that of a cluster's node can
// have the name that the cluster has told for this node, on a connection that was verified.
func (u *Upstream) secure(ctx context.Context, raw net.Conn, addr string) (net.Conn, error) {
	cfg := u.TLS()
	if cfg == nil {
		return raw, nil
	}
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		host, _, _ := net.SplitHostPort(addr)
		cfg.ServerName = host
		if name := u.announced(addr); name != "" && !cfg.InsecureSkipVerify {
			verifyEither(cfg, name, host)
		}
	}
	nc := socket.Client(raw, cfg)
	if err := nc.HandshakeContext(ctx); err != nil {
		return nil, &Error{Addr: addr, Err: fmt.Errorf("TLS: %w", err)}
	}
	return nc, nil
}

// announced is the name that a cluster has told for its node at addr, if addr is an address; ""
// otherwise.
func (u *Upstream) announced(addr string) string {
	if to, err := netip.ParseAddrPort(addr); err != nil || !to.IsValid() || u.cluster == nil {
		return ""
	}
	return u.cluster.Hostname(addr)
}

// verifyEither makes cfg ask the server for its certificate for name, and accept it if it has that
// name or is for the address. Package tls knows one name only, so that its own verification is
// replaced by the same one for each of the two.
func verifyEither(cfg *tls.Config, name, address string) {
	cfg.ServerName, cfg.InsecureSkipVerify = name, true
	now := cfg.Time
	if now == nil {
		now = time.Now
	}
	cfg.VerifyConnection = func(state tls.ConnectionState) (err error) {
		chain := state.PeerCertificates // of a server it has one at least
		options := x509.VerifyOptions{Roots: cfg.RootCAs, CurrentTime: now(),
			Intermediates: x509.NewCertPool()}
		for _, further := range chain[1:] {
			options.Intermediates.AddCert(further)
		}
		for _, options.DNSName = range []string{address, name} {
			if _, err = chain[0].Verify(options); err == nil {
				return nil
			}
		}
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
}
