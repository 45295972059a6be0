package passthrough

import (
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"strings"

	"github.com/redis/go-redis/v9"
)

// sentinelPort is where a Sentinel listens unless its URL says otherwise.
const sentinelPort = "26379"

// sentinelForm is what the URL of an upstream that is found by its Sentinels looks like.
const sentinelForm = "redis+sentinel://[user:pass@]host:port,host:port/group[/db][?sentinel_user=…&sentinel_password=…]"

// parseSentinelURL reads redis+sentinel:// or, for TLS to the Sentinels and to the servers, rediss+sentinel://. The
// credentials before the hosts are for the servers. An error never contains the URL, which may hold passwords.
func parseSentinelURL(scheme, rest string) (*Upstream, error) {
	if strings.Contains(rest, "#") || strings.Count(rest, "@") > 1 {
		return nil, fmt.Errorf("not a usable %s URL (it is not shown here since it may hold a password): want %s, with # / ? @ in a password written as %%23 %%2F %%3F %%40", scheme, sentinelForm)
	}
	login, place := "", rest
	if before, after, found := strings.Cut(rest, "@"); found {
		login, place = before+"@", after
	}
	hosts, path, _ := strings.Cut(place, "/")
	addrs, err := parseAddrs(hosts, sentinelPort)
	if err != nil {
		return nil, errors.New("the Sentinels' addresses are not host:port,host:port: want " + sentinelForm)
	}
	tlsScheme, _, _ := strings.Cut(scheme, "+")
	parsed, err := neturl.Parse(tlsScheme + "://" + login + "upstream/" + path)
	if err != nil {
		return nil, fmt.Errorf("not a URL (it is not shown here since it may hold a password): want %s", sentinelForm)
	}
	group, db, _ := strings.Cut(strings.TrimPrefix(parsed.Path, "/"), "/")
	if group == "" || strings.ContainsAny(group, " \r\n") {
		return nil, fmt.Errorf("the %s URL names no group: want %s", scheme, sentinelForm)
	}
	s := newSentinels(group, addrs)
	query := parsed.Query()
	for name, values := range query {
		switch {
		case name == "sentinel_user":
			s.user = values[0]
		case name == "sentinel_password":
			s.password = values[0]
		case name == "skip_verify" && tlsScheme == "rediss":
		default:
			return nil, fmt.Errorf("option %q in the %s URL has no effect here: leave it out", name, scheme)
		}
	}
	query.Del("sentinel_user")
	query.Del("sentinel_password")
	parsed.Path, parsed.RawPath, parsed.RawQuery = "/"+db, "", query.Encode()
	opt, err := redis.ParseURL(parsed.String())
	if err != nil {
		return nil, fmt.Errorf("not a usable %s URL: want a database's number behind the group, as in %s", scheme, sentinelForm)
	}
	if opt.TLSConfig != nil {
		opt.TLSConfig.ServerName = "" // each server's own
	}
	opt.Addr = group
	u := newUpstream(opt)
	u.sentinels = s
	return u, nil
}

// parseAddrs reads host[:port],…; an IPv6 address is in brackets.
func parseAddrs(hosts, defaultPort string) (addrs []string, err error) {
	for addr := range strings.SplitSeq(hosts, ",") {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port, err = net.SplitHostPort(addr + ":" + defaultPort)
		}
		if err != nil || host == "" || !validPort(port) {
			return nil, errors.New("not addresses")
		}
		addrs = append(addrs, net.JoinHostPort(host, port))
	}
	return addrs, nil
}
