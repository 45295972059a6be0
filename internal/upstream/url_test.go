package upstream

import (
	"strings"
	"testing"
)

// What each URL says, and why others are refused. No error shows a password.
func TestParse(t *testing.T) {
	for _, c := range []struct {
		url, network, addr, serverName string
		initial                        Identity
		err                            string
	}{
		{url: "redis://127.0.0.1:6379", network: "tcp", addr: "127.0.0.1:6379"},
		{url: "redis://", network: "tcp", addr: "localhost:6379"},
		{url: "redis://:7000", network: "tcp", addr: "localhost:7000"},
		{url: "redis://h:", network: "tcp", addr: "h:6379"},
		{url: "redis://[::1]", network: "tcp", addr: "[::1]:6379"},
		{url: "redis://[::1]:7/2", network: "tcp", addr: "[::1]:7", initial: Identity{DB: 2}},
		{url: "redis://h?db=3", network: "tcp", addr: "h:6379", initial: Identity{DB: 3}},
		{url: "redis://h/3/", network: "tcp", addr: "h:6379", initial: Identity{DB: 3}},
		{url: "redis://alice@h", network: "tcp", addr: "h:6379",
			initial: Identity{User: "alice", LoggedIn: true}},
		{url: "rediss://u:secr%23%40%2Fet@redis.test/3", network: "tcp", addr: "redis.test:6379",
			serverName: "redis.test",
			initial:    Identity{User: "u", Password: "secr#@/et", LoggedIn: true, DB: 3}},
		{url: "unix:///run/redis.sock?db=3", network: "unix", addr: "/run/redis.sock",
			initial: Identity{DB: 3}},
		{url: "unix://u:secret@/r.sock", network: "unix", addr: "/r.sock",
			initial: Identity{User: "u", Password: "secret", LoggedIn: true}},
		{url: "redis+sentinel://:secret@a,b:1,[::1]/group/4", network: "tcp", addr: "group",
			initial: Identity{Password: "secret", LoggedIn: true, DB: 4}},
		{url: "rediss+sentinel://a/group?skip_verify=true", network: "tcp", addr: "group"},
		{url: "redis+cluster://:secret@a:1,b", network: "tcp", addr: "a:1,b:6379",
			initial: Identity{Password: "secret", LoggedIn: true}},
		{url: "rediss+cluster://a/0", network: "tcp", addr: "a:6379"},

		{url: "secret@h", err: "want redis://"},
		{url: "http://:secret@h", err: "scheme"},
		{url: "redis+unix://:secret@h", err: "scheme"},
		{url: "redis://:sec#secret@h", err: "written as %23"},
		{url: "redis://:sec@secret@h", err: "written as %23"},
		{url: "redis://:secret/x@h", err: "written as %23"},
		{url: "redis://u:123/secret@h", err: "written as %23"},
		{url: "redis://u:123?secret@h", err: "written as %23"},
		{url: "redis+sentinel://u:123/secret@h/g", err: "written as %23"},
		{url: "redis+cluster://u:123/secret@h", err: "written as %23"},
		{url: "redis://:100%secret@h", err: "%25"},
		{url: "redis://:secret@h?db=3;x", err: "not a usable"},
		{url: "redis+sentinel://:secret@h/g?sentinel_password=100%secret", err: "not a usable"},
		{url: "redis://:secret@h:99999", err: "port"},
		{url: "redis://:secret@h:0", err: "port"},
		{url: "redis://:secret@h:x", err: "not a usable"},
		{url: "redis://:secret@a,b:1", err: "not a usable"},
		{url: "redis://:secret@h/x", err: "want a database's number behind the host"},
		{url: "redis://:secret@h/1/2", err: "want a database's number"},
		{url: "redis://:secret@h?db=x", err: "want a database's number"},
		{url: "redis://:secret@h?pool_size=3", err: `option "pool_size"`},
		{url: "redis://:secret@h?skip_verify=true", err: `option "skip_verify"`},
		{url: "rediss://:secret@h?skip_verify=maybe", err: `option "skip_verify"`},
		{url: "redis://:secret@h?sentinel_password=x", err: `option "sentinel_password"`},
		{url: "unix://run/redis.sock", err: "not absolute"},
		{url: "unix://", err: "want unix://[user:pass@]/path[?db=n]"},
		{url: "redis+sentinel://:secret@a", err: "names no group"},
		{url: "redis+sentinel://:secret@a/g?db=1", err: `option "db"`},
		{url: "redis+sentinel://:secret@a,,b/g", err: "host:port,host:port"},
		{url: "redis+cluster://:secret@a/1", err: "no database but 0"},
		{url: "redis+cluster://:secret@", err: "host:port,host:port"},
	} {
		u, err := Parse(c.url)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) ||
				strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", c.url, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.url, err)
			continue
		}
		c.initial.Proto = 2
		if u.Network != c.network || u.Addr != c.addr || u.Initial != c.initial ||
			strings.Contains(u.String(), "secret") {
			t.Errorf("%s: %s %s, %+v", c.url, u.Network, u.Addr, u.Initial)
		}
		if secure := strings.HasPrefix(c.url, "rediss"); (u.TLS() != nil) != secure ||
			secure && u.TLS().ServerName != c.serverName {
			t.Errorf("%s: TLS %v", c.url, u.TLS())
		}
	}
}

// The Sentinels have their own credentials.
func TestSentinelURL(t *testing.T) {
	u, err := Parse("redis+sentinel://u:p@a,b:1/g/2?sentinel_user=s&sentinel_password=q%40")
	if err != nil {
		t.Fatal(err)
	}
	s := u.sentinels
	user, password := u.sentinelLogin()
	if user != "s" || password != "q@" || strings.Join(s.addrs, " ") != "a:26379 b:1" ||
		s.group != "g" {
		t.Errorf("%q %q %q %q", user, password, s.addrs, s.group)
	}
}
