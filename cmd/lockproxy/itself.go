package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"
)

// errItself is why a proxy does not start whose upstream it would be: each connection would open
// another, until none is left.
var errItself = errors.New("--upstream is the address that this proxy listens on: name the Redis " +
	"behind it, which has port 6379 by default")

// lookupTimeout bounds the look-up of the upstream's name.
const lookupTimeout = time.Second

// isItself reports whether the single server in --upstream is what listens on an address:
// host:port, or unix:// and a path.
func (o *options) isItself(listen string) bool {
	if o.upstream == nil || o.upstream.Moves() {
		return false
	}
	if o.upstream.Network == "unix" {
		path, isUnix := strings.CutPrefix(listen, "unix://")
		return isUnix && path == o.upstream.Addr
	}
	host, port, err := net.SplitHostPort(listen)
	toHost, toPort, err2 := net.SplitHostPort(o.upstream.Addr)
	if err != nil || err2 != nil || port != toPort || port == "0" {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), lookupTimeout)
	defer cancel()
	here, there := addresses(ctx, host), addresses(ctx, toHost)
	for _, a := range there {
		for _, b := range here {
			if a.Equal(b) || b.IsUnspecified() && isLocal(a) {
				return true
			}
		}
	}
	return false
}

// addresses are those of a host; the unspecified one of none.
func addresses(ctx context.Context, host string) []net.IP {
	if host == "" {
		return []net.IP{net.IPv6unspecified}
	}
	found, _ := net.DefaultResolver.LookupIP(ctx, "ip", host)
	return found
}

// isLocal reports whether an address is one of this machine's.
func isLocal(ip net.IP) bool {
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	own, _ := net.InterfaceAddrs()
	for _, addr := range own {
		if network, ok := addr.(*net.IPNet); ok && network.IP.Equal(ip) {
			return true
		}
	}
	return false
}
