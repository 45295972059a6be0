package upstream

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"strconv"
	"strings"

	"lockproxy/internal/cluster"
)

// forms are what the URLs of each kind look like, without their schemes.
var forms = map[string]string{
	"":         "[user:pass@]host:port[/db]",
	"unix":     "[user:pass@]/path[?db=n]",
	"sentinel": "[user:pass@]host:port,host:port/group[/db][?sentinel_user=…&sentinel_password=…]",
	"cluster":  "[user:pass@]host:port,host:port",
}

// ports are where servers listen unless a URL says otherwise.
var ports = map[string]string{"": "6379", "sentinel": "26379", "cluster": "6379"}

// Parse reads redis://[user:pass@]host:port[/db], rediss:// for TLS,
// unix://[user:pass@]/path[?db=n], or redis+sentinel://[user:pass@]host:port,host:port/group[/db]
// and rediss+sentinel://, or redis+cluster://[user:pass@]host:port,host:port and rediss+cluster://,
// whose upstream must be followed: see Follow. The credentials are for the servers; TLS is for the
// Sentinels too. An error never contains the URL, which can hold passwords.
func Parse(url string) (*Upstream, error) {
	scheme, rest, found := strings.Cut(url, "://")
	if !found {
		return nil, errors.New("the URL has no scheme: want redis://" +
			forms[""])
	}
	base, kind, _ := strings.Cut(scheme, "+")
	switch scheme {
	case "redis", "rediss", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
	case "unix":
		kind = "unix"
	default:
		return nil, fmt.Errorf("scheme %q is not known: want redis, rediss, unix, redis+sentinel, "+
			"rediss+sentinel, redis+cluster or rediss+cluster", scheme)
	}
	form := scheme + "://" + forms[kind]
	parsed, addrs, err := split(base, kind, rest)
	if err != nil {
		return nil, fmt.Errorf("not a usable %s URL (it is not shown here since it may hold a "+
			"password): %w: want %s, with # %% / ? @ and the like in a password written as %%23 "+
			"%%25 %%2F %%3F %%40",
			scheme, err, form)
	}
	u := &Upstream{Network: "tcp", Addr: strings.Join(addrs, ",")}
	if base == "rediss" {
		u.SetTLS(&tls.Config{MinVersion: tls.VersionTLS12, DynamicRecordSizingDisabled: true})
	}
	password, _ := parsed.User.Password()
	u.Initial = Identity{Proto: 2, User: parsed.User.Username(), Password: password,
		LoggedIn: parsed.User.Username()+password != ""}
	db := strings.Trim(parsed.Path, "/")
	switch kind {
	case "":
		if cfg := u.TLS(); cfg != nil {
			cfg.ServerName, _, _ = net.SplitHostPort(u.Addr)
		}
	case "unix":
		if parsed.Host != "" || parsed.Path == "" {
			return nil, fmt.Errorf("the path in the unix URL is not absolute: want %s", form)
		}
		u.Network, u.Addr, db = "unix", parsed.Path, ""
	case "sentinel":
		u.Addr, db, _ = strings.Cut(strings.TrimPrefix(parsed.Path, "/"), "/")
		if u.Addr == "" || strings.ContainsAny(u.Addr, " \r\n") {
			return nil, fmt.Errorf("the %s URL names no group: want %s", scheme, form)
		}
		u.sentinels, db = newSentinels(u.Addr, addrs), strings.Trim(db, "/")
	case "cluster":
		if db != "" && db != "0" {
			return nil, fmt.Errorf("a cluster has no database but 0: want %s", form)
		}
		u.cluster = cluster.New(addrs)
	}
	for name, values := range parsed.Query() {
		if !u.setOption(name, values[len(values)-1], &db) {
			return nil, fmt.Errorf("not a usable %s URL: option %q has no effect here, or not "+
				"that value: "+
				"leave it out", scheme, name)
		}
	}
	if u.Initial.DB, err = strconv.Atoi(cmp.Or(db, "0")); err != nil {
		behind := map[string]string{"": "host", "unix": "path", "sentinel": "group"}[kind]
		return nil, fmt.Errorf("not a usable %s URL: want a database's number behind the %s, as "+
			"in %s",
			scheme, behind, form)
	}
	return u, nil
}

// setOption applies an option from behind the ? of a URL. db is the database's number, as text.
func (u *Upstream) setOption(name, value string, db *string) bool {
	cfg := u.TLS()
	switch {
	case name == "db" && !u.Moves():
		*db = value
	case name == "skip_verify" && cfg != nil:
		skip, err := strconv.ParseBool(value)
		cfg.InsecureSkipVerify = skip
		return err == nil
	case name == "sentinel_user" && u.sentinels != nil:
		u.secrets.sentinelUser = value
	case name == "sentinel_password" && u.sentinels != nil:
		u.secrets.sentinelSecret = value
	default:
		return false
	}
	return true
}

// split takes apart a URL without its scheme, and its hosts: there can be several.
func split(base, kind, rest string) (parsed *neturl.URL, addrs []string, err error) {
	login, hosts, found := strings.Cut(rest, "@")
	if !found {
		login, hosts = "", rest
	}
	tail := ""
	if i := strings.IndexAny(hosts, "/?"); i >= 0 {
		hosts, tail = hosts[:i], hosts[i:]
	}
	several := kind == "sentinel" || kind == "cluster"
	host := hosts
	if several {
		host = "upstream" // Go's URLs have one
	}
	if found {
		host = login + "@" + host
	}
	parsed, err = neturl.Parse(base + "://" + host + tail)
	// A password with "#", "/", "?" or "@" in it that isn't percent-encoded would end up, in part,
	// as something else.
	cut := strings.Contains(rest, "#") || strings.Count(rest, "@") > 1
	if err != nil || cut || found != (parsed.User != nil) {
		return nil, nil, errors.New("the text is not a URL") // without err, which quotes it
	}
	if _, err := neturl.ParseQuery(parsed.RawQuery); err != nil { // Query leaves out what is wrong
		return nil, nil, errors.New("the text behind the ? is not name=value&name=value")
	}
	switch {
	case several:
		addrs, err = parseAddrs(hosts, ports[kind])
	case kind == "":
		host, port := parsed.Hostname(), parsed.Port()
		addrs, err = parseAddrs(net.JoinHostPort(cmp.Or(host, "localhost"),
			cmp.Or(port, ports[kind])), "")
	}
	return parsed, addrs, err
}

// parseAddrs reads host[:port],…; an IPv6 address is in brackets.
func parseAddrs(hosts, defaultPort string) (addrs []string, err error) {
	for addr := range strings.SplitSeq(hosts, ",") {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port, err = net.SplitHostPort(addr + ":" + defaultPort)
		}
		if err != nil || host == "" {
			return nil, errors.New("the addresses are not host:port,host:port")
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, errors.New("the addresses are not host:port,host:port with ports from 1 " +
				"to 65535")
		}
		addrs = append(addrs, net.JoinHostPort(host, port))
	}
	return addrs, nil
}
