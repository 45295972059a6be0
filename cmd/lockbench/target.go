package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"lockproxy/internal/test/freeport"
)

// The ways to Redis that are compared.
const (
	viaDirect    = "direct"
	viaLockproxy = "lockproxy"
	viaHAProxy   = "HAProxy"
	viaTwemproxy = "twemproxy"
	// viaHAProxyThread is HAProxy with one thread, which does one thing after the other.
	viaHAProxyThread = "HAProxy, one thread"
	// viaMasters is lockproxy in front of a cluster, next to others in front of one Redis.
	viaMasters = "lockproxy, three masters"
)

var allWays = []string{viaDirect, viaLockproxy, viaHAProxy, viaTwemproxy} // directly first

// target is a way to Redis.
type target struct {
	name   string
	server *server
}

// needs are the servers of a part, except Redis.
type needs struct {
	lockproxies int
	parking     bool     // another lockproxy, with --park, behind these
	targets     []string // of the ways above, direct first
	tls         bool     // Redis can be reached with TLS, too, directly, by lockproxy and by HAProxy
	profiled    bool     // of lockproxy it can be asked what it does
	masters     int      // of a Redis Cluster that all lead to, or viaMasters alone; 0 for none
	replicas    int      // of the first masters
}

// maxClients is how many clients the servers are told to accept, if the limit on open files allows
// it.
const maxClients = 12000

// open starts a Redis and what else is needed, in front of it. close ends them.
func (l *lab) open(n needs) (b *bench, err error) {
	b = &bench{lab: l, servers: &servers{}, rounds: 1}
	defer func() {
		if err != nil {
			b.masters.close()
			b.shards.close()
			b.servers.close()
		}
	}()
	var tlsArgs []string
	if n.tls {
		if b.tlsAddr, tlsArgs, err = b.tlsArgs(); err != nil {
			return nil, err
		}
	}
	redis, err := b.startRedis(tlsArgs...)
	if err != nil {
		return nil, err
	}
	b.redis = redis.addr
	direct, upstream := redis, "redis://"+redis.addr
	if n.masters > 0 {
		if err := b.startCluster(n.masters, n.replicas); err != nil {
			return nil, err
		}
		if !slices.Contains(n.targets, viaMasters) {
			direct, upstream = b.masters.nodes[0], b.masters.url()
		}
	}
	for range n.lockproxies {
		p, err := b.startLockproxy(upstream)
		if err != nil {
			return nil, err
		}
		b.proxies = append(b.proxies, p.addr)
	}
	if n.parking {
		p, err := b.startLockproxy(upstream, "--park", parkFor)
		if err != nil {
			return nil, err
		}
		b.proxies = append(b.proxies, p.addr)
	}
	for _, name := range n.targets {
		server := direct
		switch name {
		case viaLockproxy:
			if n.profiled {
				server, err = b.startProfiled(upstream)
			} else {
				server, err = b.startLockproxy(upstream)
			}
		case viaMasters:
			server, err = b.startLockproxy(b.masters.url())
		case viaHAProxy:
			server, err = b.startHAProxy("", redis.addr)
		case viaHAProxyThread:
			server, err = b.startHAProxy("  nbthread 1\n", redis.addr)
		case viaTwemproxy:
			if err = b.startShards(n.masters); err == nil {
				server, err = b.startTwemproxy()
			}
		}
		if err != nil {
			return nil, err
		}
		b.targets = append(b.targets, &target{name, server})
	}
	if n.tls {
		if err := b.openTLS(redis); err != nil {
			return nil, err
		}
	}
	if b.monitor, err = b.watch(redis.addr); err != nil {
		return nil, err
	}
	l.versions.redis = b.monitor.version()
	return b, nil
}

// watch connects to a Redis for as long as the part takes.
func (b *bench) watch(addr string) (monitor, error) {
	c, err := dial(addr)
	if err != nil {
		return monitor{}, err
	}
	c.nc.SetDeadline(time.Time{})
	if end, ok := b.ctx.Deadline(); ok {
		c.nc.SetDeadline(end.Add(time.Second))
	}
	return monitor{c}, nil
}

func (b *bench) close() {
	b.monitor.close()
	b.masters.close()
	b.shards.close()
	b.servers.close()
}

func (b *bench) startRedis(more ...string) (*server, error) {
	addr, err := freeport.Addr()
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	return b.servers.start(b.ctx, addr, "redis-server", append(b.redisArgs(port), more...)...)
}

func (b *bench) redisArgs(port string) []string {
	return []string{"--port", port, "--bind", "127.0.0.1", "--dir", b.dir, "--save", "",
		"--appendonly", "no",
		"--tcp-backlog", strconv.Itoa(backlog), "--maxclients", strconv.Itoa(maxClients)}
}

// backlog is how many connections can wait to be accepted: as many as thousands of clients that
// come at once need.
const backlog = 4096

// startProfiled starts a lockproxy that serves profiles of itself, and which locks are taken
// through.
func (b *bench) startProfiled(upstream string) (*server, error) {
	admin, err := freeport.Addr()
	if err != nil {
		return nil, err
	}
	s, err := b.startLockproxy(upstream, "--admin", admin, "--admin-pprof")
	if err != nil {
		return nil, err
	}
	b.profiles, b.proxies = admin, []string{s.addr}
	return s, nil
}

func (b *bench) startLockproxy(upstream string, more ...string) (*server, error) {
	addr, err := freeport.Addr()
	if err != nil {
		return nil, err
	}
	args := []string{"--listen", addr, "--upstream", upstream, "--log-level", "warn",
		"--max-clients", strconv.Itoa(maxClients)}
	return b.servers.start(b.ctx, addr, b.proxy, append(append(args, more...), b.args...)...)
}

// startHAProxy starts it as a plain TCP proxy before a Redis, with further global settings,
// otherwise as it is by itself: with a thread for each core.
func (b *bench) startHAProxy(global, redis string) (*server, error) {
	clients := min(maxClients, (b.files-spareFiles)/2) // more is refused, not lowered
	return b.configured("haproxy", `global
`+global+`  maxconn %[1]d
defaults
  mode tcp
  maxconn %[1]d
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen redis
  bind %[2]s backlog %[3]d
  server redis `+redis+`
`, func(config string) []string { return []string{"-f", config} }, clients)
}

// spareFiles is how many files a server may have open in addition to its clients' connections.
const spareFiles = 150

// startTwemproxy starts it with one connection to Redis, or to each of the shards, which is its
// default and what it is made for.
func (b *bench) startTwemproxy() (*server, error) {
	stats, err := freeport.Addr() // it always serves statistics, by default to everybody
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(stats)
	servers := "    - " + b.redis + ":1\n"
	if len(b.shards.nodes) > 0 {
		servers = ""
		for _, node := range b.shards.nodes {
			servers += "    - " + node.addr + ":1\n"
		}
	}
	return b.configured("nutcracker", `redis:
  listen: %[2]s
  redis: true
  backlog: %[3]d
  servers:
`+servers, func(config string) []string {
		return []string{"-c", config, "-a", host, "-s", port, "-v", "1"}
	}, 0)
}

// configured starts a program with a configuration file, in which %[1]d are the most clients, %[2]s
// is its address, and %[3]d the backlog.
func (b *bench) configured(program, config string, args func(file string) []string,
	clients int) (*server, error) {
	path, err := find(program)
	if err != nil {
		return nil, err
	}
	addr, err := freeport.Addr()
	if err != nil {
		return nil, err
	}
	file := filepath.Join(b.dir, program+"-"+addr+".conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, clients, addr, backlog),
		0o600); err != nil {
		return nil, fmt.Errorf("cannot write the configuration of %s: %w", program, err)
	}
	return b.servers.start(b.ctx, addr, path, args(file)...)
}

// buildProxy compiles lockproxy from the module that lockbench is run in.
func buildProxy(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "lockproxy")
	return path, runProgram(ctx, "go", "build", "-o", path, "lockproxy/cmd/lockproxy")
}
