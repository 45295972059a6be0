package proxy

import (
	"cmp"
	"crypto/tls"
	"math"
	"net/netip"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
)

// Config has the settings of a Server. Upstream is required.
type Config struct {
	Upstream    *upstream.Upstream
	Locks       lockcmd.Config
	Limits      resp.Limits   // zero fields are Redis's own limits
	MaxClients  int           // 0 is 10,000, as in Redis
	Files       int           // how many can be open; 0 is what the system allows
	OtherFiles  int           // of Files, for what else is in this process
	DialTimeout time.Duration // of connecting and logging in to the upstream; 0 is 5 s
	Logger      hclog.Logger  // nil logs nothing
	Observer    Observer      // is told how long things took; nil for none
	Version     string        // for INFO lockproxy
	Host        string        // names this proxy for people, in its ID; "" leaves it out
	Embedded    bool          // Upstream is an in-memory store in this process
	Public      bool          // clients of other machines can connect, with no certificate

	// UpstreamConns is how many lanes there are at most for one user, database and protocol; 0 is
	// 1.
	UpstreamConns int
	// HomeIdle is after how long without a request a client's home is closed, if its state is that
	// of a new connection. It is dialled again on demand. 0 is never.
	HomeIdle time.Duration
	// Dedicated means that clients share no connections.
	Dedicated bool
	// ClusterAnnounce is host:port where clients that know Redis Cluster are told to go, if the
	// upstream is one; "" is where each has connected to.
	ClusterAnnounce string
	// ClientBuffer bounds a request that must be seen whole, bytes: a lock command, AUTH, HELLO,
	// CLIENT, COMMAND. Others are streamed. 0 is 1 MiB; less than 64 KiB, the size of a read, makes
	// no difference.
	ClientBuffer int
	// MaxUnread bounds the temporary files with replies that clients don't read, all together,
	// bytes; 0 is 1 GiB. A client for whose replies there is no room is closed.
	MaxUnread int64
	// Park is by how much the nil of a SET key value NX PX|EX can be delayed for a lock that was
	// seen being taken. ParkKeys, a pattern as KEYS takes it, limits it to some keys. 0 is not at
	// all.
	Park     time.Duration
	ParkKeys string
	// TLS is the configuration for clients; nil is plain text.
	TLS *tls.Config
	// ProxyProtocolFrom are the networks whose connections begin with a PROXY header, version 1 or
	// 2. One that doesn't is closed.
	ProxyProtocolFrom []netip.Prefix
	// HandshakeTimeout is for the PROXY header and the TLS handshake together; 0 is 10 s.
	HandshakeTimeout time.Duration
}

// spares is how many homes are open before their clients come. In front of a cluster, opening one
// takes so long that clients which share nothing need them, too.
func (cfg *Config) spares() int {
	if cfg.Dedicated && !cfg.Locks.Cluster {
		return 0
	}
	return 4
}

// setDefaults gives zero fields the values that they stand for.
func (cfg *Config) setDefaults() {
	cfg.MaxClients = cmp.Or(cfg.MaxClients, 10000)
	cfg.Files = cmp.Or(cfg.Files, openFiles())
	cfg.UpstreamConns = cmp.Or(cfg.UpstreamConns, 1)
	if cfg.Dedicated {
		cfg.UpstreamConns = 0
	}
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, 5*time.Second)
	cfg.ClientBuffer = cmp.Or(cfg.ClientBuffer, 1<<20)
	cfg.MaxUnread = cmp.Or(cfg.MaxUnread, 1<<30)
	cfg.HandshakeTimeout = cmp.Or(cfg.HandshakeTimeout, 10*time.Second)
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Locks.Observer == nil && cfg.Observer != nil {
		cfg.Locks.Observer = cfg.Observer
	}
	cfg.Locks.Moves = cfg.Upstream.Moves()
	cfg.Locks.Cluster = cfg.Locks.Cluster || cfg.Upstream.IsCluster()
}

// openFiles is how many files this process may have open. Package os has raised that to what the
// system allows.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
