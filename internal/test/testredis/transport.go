package testredis

// By which transport the proxies under test reach servers and links.

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"lockproxy/internal/test/testtls"
)

// Transport is how bytes get to a server.
type Transport string

const (
	TCP  Transport = "tcp"
	TLS  Transport = "tls"
	Unix Transport = "unix"
)

// TransportVariable fixes the transports of a test process: that of upstreams or, behind a slash,
// that of clients; or it is the seed that they follow from.
const TransportVariable = "LOCKPROXY_TEST_TRANSPORT"

// rotation says how transports are chosen. The zero value chooses TCP.
type rotation struct {
	sides [2]bool      // whether any is chosen for Upstreams and Clients
	fixed [2]Transport // for Upstreams and Clients; "" if they follow from seed
	seed  uint64

	mu    sync.Mutex
	count map[string]uint64 // guarded by mu; of choices, by their names
}

var transports rotation

// Side is which connections a transport is chosen for.
type Side int

const (
	Upstreams Side = iota // of proxies to servers
	Clients               // of clients to proxies
)

// RotateTransports has the tests of this process use all transports for some sides, as
// TransportVariable says. It returns what that must be to repeat them.
func RotateTransports(sides ...Side) (again string) {
	r := &transports
	for _, side := range sides {
		r.sides[side] = true
	}
	again = os.Getenv(TransportVariable)
	if seed, err := strconv.ParseUint(again, 10, 64); err == nil {
		r.seed = seed
		return again
	}
	if again == "" {
		r.seed = rand.Uint64()
		return fmt.Sprint(r.seed)
	}
	upstreams, clients, _ := strings.Cut(again, "/")
	for side, name := range []string{upstreams, clients} {
		if name == "" {
			name = string(TCP)
		}
		if r.fixed[side] = Transport(name); !slices.Contains(rotating, r.fixed[side]) {
			panic(TransportVariable + " is tcp, tls or unix, perhaps with a second one behind a " +
				"slash, or a seed")
		}
	}
	return again
}

// rotating is what is chosen from. Half of all connections are plain ones, as most are.
var rotating = []Transport{TCP, TLS, TCP, Unix}

// ChooseTransport chooses one of those that are possible.
func ChooseTransport(t testing.TB, side Side, possible ...Transport) Transport {
	r := &transports
	if !r.sides[side] {
		return TCP
	}
	chosen := r.fixed[side]
	if chosen == "" {
		name := fmt.Sprint(t.Name(), side)
		r.mu.Lock()
		if r.count == nil {
			r.count = map[string]uint64{}
		}
		r.count[name]++
		h := fnv.New64a()
		fmt.Fprint(h, r.seed, name, r.count[name])
		r.mu.Unlock()
		chosen = rotating[h.Sum64()>>32%uint64(len(rotating))]
	}
	if !slices.Contains(possible, chosen) {
		return TCP
	}
	return chosen
}

// reached are the servers and links that proxies reach otherwise than by TCP, by their addresses.
var reached sync.Map // of way

// way is how something is reached.
type way struct {
	transport Transport
	addr      string // host:port or a path
}

// reachBy has proxies reach what is at addr by another way, until the test ends.
func reachBy(t testing.TB, addr string, by way) {
	reached.Store(addr, by)
	t.Cleanup(func() { reached.Delete(addr) })
	t.Logf("proxies reach %s by %s", addr, by.transport)
}

// Reach is the URL by which a proxy reaches the servers at rawURL by the transport that was chosen
// for them. It is rawURL itself if that is TCP, or says another one.
func Reach(rawURL string) string {
	scheme, rest, _ := strings.Cut(rawURL, "://")
	kind, group, _ := strings.Cut(scheme, "+")
	end := strings.IndexAny(rest+"/", "/?")
	login, hosts := "", rest[:end]
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		login, hosts = hosts[:at+1], hosts[at+1:]
	}
	by := way{transport: TCP}
	list := strings.Split(hosts, ",")
	for i, host := range list {
		if found, ok := reached.Load(host); ok {
			by = found.(way)
			list[i] = by.addr
		}
	}
	switch {
	case kind != "redis" || by.transport == TCP:
		return rawURL
	case by.transport == Unix:
		db := strings.Trim(rest[end:], "/")
		if db != "" {
			db = "?db=" + db
		}
		return "unix://" + login + by.addr + db
	}
	if group != "" {
		scheme = "rediss+" + group
	} else {
		scheme = "rediss"
	}
	return scheme + "://" + login + strings.Join(list, ",") + rest[end:]
}

// listenAlsoBy has a server, which has not been started yet, serve proxies by a transport.
func (s *Server) listenAlsoBy(by Transport) {
	s.t.Helper()
	if slices.ContainsFunc(s.args, func(arg string) bool {
		return strings.HasPrefix(arg, "--tls-") || arg == "--unixsocket"
	}) {
		return // the test is about that
	}
	switch by {
	case TLS:
		s.serveTLS()
	case Unix:
		path := filepath.Join(s.dir, socketName)
		if len(path) > maxSocketPath {
			path = SocketPath(s.t)
		}
		s.args = append(s.args, "--unixsocket", path)
		reachBy(s.t, s.Addr(), way{Unix, path})
	}
}

// serveTLS has a server serve TLS, too, and proxies reach it by that. A cluster's node also needs
// ports above its own, by also.
func (s *Server) serveTLS(also ...int) {
	s.t.Helper()
	port := strconv.Itoa(FreePort(s.t, also...))
	s.args = append(s.args, append(s.certificates(), "--tls-port", port)...)
	reachBy(s.t, s.Addr(), way{TLS, "127.0.0.1:" + port})
}

// betweenServers are the arguments by which servers that serve TLS talk to each other by that.
var betweenServers = []string{"--tls-replication", "yes"}

// tlsPort is the port on which a server serves TLS, if it does.
func (s *Server) tlsPort() (port string, ok bool) {
	if i := slices.Index(s.args, "--tls-port"); i >= 0 {
		return s.args[i+1], true
	}
	return "", false
}

// certificates are the arguments by which a server serves TLS. It asks clients for none.
func (s *Server) certificates() (args []string) {
	s.t.Helper()
	pair := testtls.Common()
	cert, key, ca := filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem"),
		filepath.Join(s.dir, "ca.pem")
	for file, text := range map[string][]byte{cert: pair.CertPEM, key: pair.KeyPEM, ca: pair.CAPEM} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	return []string{"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca,
		"--tls-auth-clients", "no"}
}

// maxSocketPath is how long a Unix socket's path can be.
const (
	maxSocketPath = 100
	socketName    = "socket"
)

// SocketPath is a path for a Unix socket, short enough for one, until the test ends.
func SocketPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", dirPrefix) // which is short, and tests change TMPDIR
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, socketName)
}
