package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"lockproxy/internal/test/freeport"
	"lockproxy/internal/test/testtls"
)

// The ways to Redis that lockbench compares. Each lockproxy is one, by its name.
const (
	viaDirect    = "direct"
	viaLockproxy = "lockproxy" // unless --proxy says otherwise
	viaHAProxy   = "HAProxy"
	viaTwemproxy = "twemproxy"
	// After the name of a proxy: a second process of it, or one that reaches Redis with TLS.
	viaSecond = ", second"
	byTLS     = " by TLS"
)

// needs are the servers of a suite. Redis and a lockproxy of each kind always run, unless fresh
// says that each case starts its own.
type needs struct {
	fresh              bool
	second             bool // two of each lockproxy
	haproxy, twemproxy bool
	tls                bool // other lockproxies and another HAProxy reach Redis with TLS
	masters            int  // of a Redis Cluster behind lockproxy
	admin              bool // lockproxy serves metrics
}

// bench is the servers of a suite.
type bench struct {
	*lab
	needs
	running     []*server          // in the order in which they were started
	ways        map[string]*server // by the names of ways
	lockproxies []*server
	monitors    []*client // of Redis, or of the masters
	shards      []*client // of the separate Redises behind twemproxy, next to a cluster
	tlsAddr     string    // of Redis
}

// open starts a Redis and the proxies in front of it. close ends them.
func (l *lab) open(n needs) (*bench, error) {
	b := &bench{lab: l, needs: n, ways: map[string]*server{}}
	if n.fresh {
		return b, nil
	}
	if err := b.start(); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) start() error {
	upstream, err := b.startRedises()
	if err != nil {
		return err
	}
	for _, p := range b.proxies {
		if err := b.startLockproxy(p.name, p.path, upstream); err != nil {
			return err
		}
		if b.second {
			if err := b.startLockproxy(p.name+viaSecond, p.path, upstream); err != nil {
				return err
			}
		}
		if b.tls {
			if err := b.startLockproxy(p.name+byTLS, p.path, "rediss://"+b.tlsAddr,
				"--upstream-tls-ca", b.caFile()); err != nil {
				return err
			}
		}
	}
	if b.haproxy {
		if err := b.startHAProxy(viaHAProxy, b.ways[viaDirect].addr); err != nil {
			return err
		}
	}
	if b.haproxy && b.tls {
		if err := b.startHAProxy(viaHAProxy+byTLS, b.tlsAddr+" ssl ca-file "+
			b.caFile()); err != nil {
			return err
		}
	}
	if b.twemproxy {
		if err := b.startTwemproxy(); err != nil {
			return err
		}
	}
	return nil
}

// alone starts the servers of one case of a suite whose cases share none: a Redis, and a lockproxy
// or two of one kind.
func (b *bench) alone(n needs, only ...proxyBinary) (*bench, error) {
	l := *b.lab
	l.proxies = only
	return l.open(n)
}

func (b *bench) close() {
	for _, c := range append(b.monitors, b.shards...) {
		c.close()
	}
	for _, s := range slices.Backward(b.running) { // proxies first
		s.end()
	}
}

// empty removes everything from the Redis, or the masters.
func (b *bench) empty() error {
	for _, m := range b.monitors {
		if _, err := m.do("FLUSHALL"); err != nil {
			return fmt.Errorf("cannot empty Redis: %w", err)
		}
	}
	return nil
}

// restart starts the proxies again, so that a failed run does not affect the next one.
func (b *bench) restart() error {
	for _, s := range b.running {
		if s.path == redisServer {
			continue
		}
		s.end()
		if err := s.start(b.ctx); err != nil {
			return err
		}
	}
	return nil
}

// during is how much Redis, or the masters, and a way's proxy have used while work ran.
func (b *bench) during(way string, work func() error) (redis usage, proxy time.Duration,
	err error) {
	ask := func() (usage, time.Duration, error) {
		var proxy time.Duration
		if s := b.ways[way]; s != nil && way != viaDirect {
			var err error
			if proxy, err = s.process().cpu(); err != nil {
				return usage{}, 0, err
			}
		}
		u, err := usageOf(b.behind(way)...)
		return u, proxy, err
	}
	before, proxyBefore, err := ask()
	if err == nil {
		err = work()
	}
	if err != nil {
		return usage{}, 0, err
	}
	after, proxyAfter, err := ask()
	return after.plus(before, -1), proxyAfter - proxyBefore, err
}

// behind are the Redises that do the work of a way's clients.
func (b *bench) behind(way string) []*client {
	if way == viaTwemproxy && len(b.shards) > 0 {
		return b.shards
	}
	return b.monitors
}

// launch starts a program.
func (b *bench) launch(name string, s *server) error {
	if err := s.start(b.ctx); err != nil {
		return err
	}
	b.running = append(b.running, s)
	if name != "" {
		b.ways[name] = s
	}
	return nil
}

const (
	redisServer = "redis-server"
	// maxClients is the number of clients that servers accept.
	maxClients = 12000
	// spareFiles is the number of files that a server may have open besides its clients' connections.
	spareFiles = 400
	// backlog is the number of connections that can wait to be accepted, enough for thousands of
	// clients that connect at once.
	backlog = "4096"
	// busOffset is the distance from a node's port to the port of the cluster bus.
	busOffset = 10000
)

// most is the number of clients that a proxy can have, at most wanted. A process can have only so
// many files open, and a proxy may need two for a client.
func (l *lab) most(wanted int) int { return min(wanted, (l.files-spareFiles)/2) }

// startRedis starts a Redis, with a connection that asks it for its figures.
func (b *bench) startRedis(name string, more ...string) (*server, *client, error) {
	addr, err := freeport.Addr(busOffset)
	if err != nil {
		return nil, nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	s := &server{addr: addr, path: redisServer, args: append([]string{"--port", port,
		"--bind", "127.0.0.1", "--dir", b.dir, "--save", "", "--appendonly", "no",
		"--cluster-config-file", "nodes-" + port + ".conf", "--tcp-backlog", backlog,
		"--maxclients", strconv.Itoa(maxClients)}, more...)}
	if err := b.launch(name, s); err != nil {
		return nil, nil, err
	}
	monitor, err := dial(addr)
	if err != nil {
		return nil, nil, err
	}
	monitor.conn.SetDeadline(time.Time{})
	return s, monitor, nil
}

// startRedises starts the Redis, or the cluster, and returns its URL for lockproxy.
func (b *bench) startRedises() (upstream string, err error) {
	if b.masters > 0 {
		return b.startCluster()
	}
	var more []string
	if b.tls {
		if b.tlsAddr, more, err = b.makeTLS(); err != nil {
			return "", err
		}
	}
	redis, monitor, err := b.startRedis(viaDirect, more...)
	if err != nil {
		return "", err
	}
	b.monitors = []*client{monitor}
	return "redis://" + redis.addr, nil
}

func (b *bench) startLockproxy(name, path, upstream string, more ...string) error {
	addr, err := freeport.Addr()
	if err != nil {
		return err
	}
	s := &server{addr: addr, path: path, args: append(append([]string{"--listen", addr,
		"--upstream", upstream, "--log-level", "warn", "--max-clients", strconv.Itoa(maxClients)},
		more...), b.args...)}
	if b.admin {
		if s.admin, err = freeport.Addr(); err != nil {
			return err
		}
		s.args = append(s.args, "--admin", s.admin, "--admin-pprof")
	}
	b.lockproxies = append(b.lockproxies, s)
	return b.launch(name, s)
}

// startHAProxy starts HAProxy as a plain TCP proxy, by default with a thread for each core.
func (b *bench) startHAProxy(name, redis string) error {
	addr, err := freeport.Addr()
	if err != nil {
		return err
	}
	return b.configured(name, "haproxy", addr, fmt.Sprintf(`global
  maxconn %[1]d
defaults
  mode tcp
  maxconn %[1]d
  timeout connect 5s
  timeout client 1h
  timeout server 1h
listen redis
  bind %[2]s backlog %[3]s
  server redis %[4]s
`, b.most(maxClients), addr, backlog, redis), "-f")
}

// startTwemproxy starts twemproxy with one connection to Redis, its default. It knows no clusters:
// next to a cluster, it is in front of as many separate Redises.
func (b *bench) startTwemproxy() error {
	servers := ""
	for range b.masters {
		shard, monitor, err := b.startRedis("")
		if err != nil {
			return err
		}
		b.shards = append(b.shards, monitor)
		servers += "    - " + shard.addr + ":1\n"
	}
	if b.masters == 0 {
		servers = "    - " + b.ways[viaDirect].addr + ":1\n"
	}
	addr, err := freeport.Addr()
	if err != nil {
		return err
	}
	stats, err := freeport.Addr() // it always serves statistics, by default on all addresses
	if err != nil {
		return err
	}
	host, port, _ := net.SplitHostPort(stats)
	return b.configured(viaTwemproxy, "nutcracker", addr, fmt.Sprintf(
		"redis:\n  listen: %s\n  redis: true\n  backlog: %s\n  servers:\n%s", addr, backlog, servers),
		"-a", host, "-s", port, "-v", "1", "-c")
}

// configured starts a program whose last argument is the file of its configuration.
func (b *bench) configured(name, program, addr, config string, args ...string) error {
	file := filepath.Join(b.dir, program+"-"+addr+".conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return fmt.Errorf("cannot write the configuration of %s: %w", program, err)
	}
	return b.launch(name, &server{addr: addr, path: program, args: append(args, file)})
}

// caFile is the certificate of the authority of the Redis that serves TLS.
func (l *lab) caFile() string { return filepath.Join(l.dir, "ca.crt") }

// makeTLS writes certificates, and returns the arguments by which a Redis serves TLS on addr, too.
func (b *bench) makeTLS() (addr string, args []string, err error) {
	made, cert, key := testtls.Common(), filepath.Join(b.dir, "redis.crt"),
		filepath.Join(b.dir, "redis.key")
	addr, err = freeport.Addr()
	_, port, _ := net.SplitHostPort(addr)
	return addr, []string{"--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
			"--tls-auth-clients", "no"}, errors.Join(err, os.WriteFile(b.caFile(), made.CAPEM, 0o600),
			os.WriteFile(cert, made.CertPEM, 0o600), os.WriteFile(key, made.KeyPEM, 0o600))
}
