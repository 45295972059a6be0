package testredis

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// Group is a master with replicas, and the Sentinels that watch them.
type Group struct {
	Name      string
	Servers   []*Server // the first is the master at the start
	Sentinels []*Server
}

// GroupOptions says how a group is set up. The zero value is a plain one.
type GroupOptions struct {
	Replicas         int      // 0 is 2
	Sentinels        int      // 0 is 3
	ServerArgs       []string // for each server, as for Start
	Password         string   // of the servers
	SentinelPassword string
	SentinelLines    []string // of each Sentinel's configuration
	SentinelArgs     []string // for each Sentinel, as for Start
	// Linked gives each server a link, by which all others reach it, and which is RoundTrip long.
	Linked    bool
	RoundTrip time.Duration

	tls bool // all serve TLS, and use it
}

// sentinelPatience is how long a Sentinel takes a silent server for slow, not for down, in
// milliseconds. Otherwise a busy machine would have masters replaced that tests rely on.
const sentinelPatience = 600_000

// StartGroup starts a master, its replicas and the Sentinels, and returns when each Sentinel knows
// all the others.
func StartGroup(t testing.TB, o GroupOptions) *Group {
	t.Helper()
	by := TCP
	if !o.Linked {
		by = ChooseTransport(t, Upstreams, TLS)
	}
	return StartGroupBy(t, by, o)
}

// StartGroupBy is StartGroup for a test that is about a transport. With TLS all use that.
func StartGroupBy(t testing.TB, by Transport, o GroupOptions) *Group {
	t.Helper()
	o.tls = by == TLS
	if o.Replicas == 0 {
		o.Replicas = 2
	}
	if o.Sentinels == 0 {
		o.Sentinels = 3
	}
	args := o.ServerArgs
	if o.Password != "" {
		args = append([]string{"--requirepass", o.Password, "--masterauth", o.Password}, args...)
	}
	g := &Group{Name: "mymaster"}
	args = append([]string{"--repl-diskless-sync", "no"}, args...)
	for range 1 + o.Replicas {
		s := newServer(t, args)
		if o.tls {
			s.serveTLS()
			s.args = append(s.args, betweenServers...)
		}
		if o.Linked {
			s.linkBy(o.RoundTrip, "--replica-announce-port")
		}
		g.Servers = append(g.Servers, s)
		if s != g.Servers[0] {
			host, port, _ := net.SplitHostPort(g.Servers[0].Told())
			s.args = append(s.args, "--replicaof", host, port)
		}
		s.start()
	}
	for range o.Sentinels {
		g.Sentinels = append(g.Sentinels, startSentinel(t, g.Name, g.Servers[0].Told(), o))
	}
	for _, s := range g.Sentinels {
		g.waitUntil(t, s, "num-slaves", o.Replicas)
		g.waitUntil(t, s, "num-other-sentinels", o.Sentinels-1)
	}
	return g
}

// StartSentinel starts one Sentinel that watches the master at addr as "mymaster", with arguments
// as for Start.
func StartSentinel(t testing.TB, addr string, args ...string) *Server {
	t.Helper()
	return startSentinel(t, "mymaster", addr, GroupOptions{Sentinels: 1, SentinelArgs: args})
}

func startSentinel(t testing.TB, group, addr string, o GroupOptions) *Server {
	t.Helper()
	s := &Server{t: t, port: FreePort(t), dir: serverDir(t)}
	host, port, _ := net.SplitHostPort(addr)
	lines := []string{
		"bind 127.0.0.1", "port " + strconv.Itoa(s.port), "dir " + s.dir, "protected-mode no",
		fmt.Sprintf("sentinel monitor %s %s %s %d", group, host, port, o.Sentinels/2+1),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", group, sentinelPatience),
		fmt.Sprintf("sentinel failover-timeout %s 2000", group),
		fmt.Sprintf("sentinel parallel-syncs %s 2", group),
	}
	if o.Password != "" {
		lines = append(lines, fmt.Sprintf("sentinel auth-pass %s %s", group, o.Password))
	}
	if o.SentinelPassword != "" {
		lines = append(lines, "sentinel sentinel-pass "+o.SentinelPassword)
	}
	conf := filepath.Join(serverDir(t), "sentinel.conf")
	if err := os.WriteFile(conf, []byte(strings.Join(append(lines, o.SentinelLines...), "\n")+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	s.args = append([]string{conf, "--sentinel"}, o.SentinelArgs...)
	if o.tls {
		s.serveTLS()
		s.args = append(s.args, betweenServers...)
	}
	if o.SentinelPassword != "" {
		s.args = append(s.args, "--requirepass", o.SentinelPassword)
	}
	s.start()
	// One that was stopped for 2 s would do nothing for the next 30 (versions before 7 do so).
	s.ask("SENTINEL", "DEBUG", "TILT-TRIGGER", strconv.Itoa(sentinelPatience))
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("Sentinel on port %d said:\n%s", s.port, s.log.String())
		}
	})
	return s
}

// waitUntil waits for a number in what a Sentinel tells of the group.
func (g *Group) waitUntil(t testing.TB, s *Server, field string, want int) {
	t.Helper()
	testwait.Until(t, fmt.Sprintf("%s is %d at the Sentinel on port %d", field, want, s.port),
		func() bool { return g.facts(s)[field] == strconv.Itoa(want) })
}

// facts is what a Sentinel tells of the group.
func (g *Group) facts(s *Server) map[string]string {
	facts := map[string]string{}
	v, _ := wire.Parse(s.ask("SENTINEL", "MASTER", g.Name))
	for i := 0; i+1 < len(v.Elems); i += 2 {
		facts[v.Elems[i].Text] = v.Elems[i+1].Text
	}
	return facts
}

// URL is how lockproxy finds the group.
func (g *Group) URL() string {
	addrs := make([]string, len(g.Sentinels))
	for i, s := range g.Sentinels {
		addrs[i] = s.Addr()
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/" + g.Name
}

// Failover makes the Sentinels replace the master by hand, as soon as they think that it can be
// done.
func (g *Group) Failover(t testing.TB) {
	t.Helper()
	testwait.Until(t, "a Sentinel begins a failover", func() bool {
		return g.Sentinels[0].Ask("SENTINEL", "FAILOVER", g.Name) == "+OK"
	})
}

// WaitReplaced waits until the first Sentinel names another master than old, and returns that. As
// long as it replaces none it is told to: waiting until it finds out would need a bound of silence,
// which a busy machine breaks for the next master too. And a replica that takes too long to become
// the master makes it give up.
func (g *Group) WaitReplaced(t testing.TB, old *Server) (master *Server) {
	t.Helper()
	testwait.Until(t, "the Sentinels name another master", func() bool {
		facts := g.facts(g.Sentinels[0])
		master = g.named(facts)
		if master == old && !strings.Contains(facts["flags"], "failover_in_progress") {
			g.Sentinels[0].Ask("SENTINEL", "FAILOVER", g.Name) // refused while no replica is fit
		}
		return master != nil && master != old
	})
	return master
}

// InSync returns when all servers but the master are its replicas and have all that it has, and the
// Sentinels know. A server that takes itself for the master is told otherwise: Sentinels do that only
// when they have heard for 8 s that it does.
func (g *Group) InSync(t testing.TB) {
	t.Helper()
	testwait.Until(t, "all replicas are in sync", func() bool {
		master := g.Master()
		if master == nil || g.facts(g.Sentinels[0])["flags"] != "master" {
			return false
		}
		host, port, _ := net.SplitHostPort(master.Told())
		for _, s := range g.Servers {
			info := s.Ask("INFO", "replication")
			if s != master && strings.Contains(info, "role:master") &&
				strings.Contains(master.Ask("INFO", "replication"), "role:master") {
				s.Ask("REPLICAOF", host, port)
			}
			if s != master && !(strings.Contains(info, "role:slave") &&
				strings.Contains(info, "master_port:"+port) &&
				strings.Contains(info, "master_link_status:up")) {
				return false
			}
		}
		return true
	})
}

// Master is the server that the first Sentinel names, or nil.
func (g *Group) Master() *Server { return g.named(g.facts(g.Sentinels[0])) }

// named is the server that a Sentinel's facts name as the master, or nil.
func (g *Group) named(facts map[string]string) *Server {
	for _, s := range g.Servers {
		if s.Told() == net.JoinHostPort(facts["ip"], facts["port"]) {
			return s
		}
	}
	return nil
}
