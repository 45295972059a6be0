package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/proxy"
)

// options are the flags of serving. Every flag is also an environment variable, LOCKPROXY_ and the
// flag's name in capitals.
type options struct {
	Config string `group:"Serving" placeholder:"FILE" help:"Read settings from this file: TOML, with the names of flags, as in max-clients = 5000. SIGHUP reads it again."`

	Listen          string        `group:"Serving" default:"127.0.0.1:6380" placeholder:"ADDRESS" help:"Where clients connect: host:port, unix:///path for a Unix socket, or systemd for that of a .socket unit (default ${default})."`
	ListenMode      fileMode      `advanced:"" group:"Serving" default:"0700" placeholder:"MODE" help:"Permissions of the Unix socket, octal; who may write to it may connect (default ${default})."`
	Upstream        filled        `group:"Serving" placeholder:"URL" help:"The Redis to stand in front of: redis://[user:pass@]host:port[/db], rediss:// for TLS, unix://[user:pass@]/path[?db=n], redis+sentinel://[user:pass@]host:port,host:port/group[/db] (rediss+sentinel:// for TLS) for the master that Sentinels name, or redis+cluster://[user:pass@]host:port,host:port (rediss+cluster:// for TLS) for a whole Redis Cluster, some of whose nodes are named. Clients start as this user, in this database. Without it: an in-memory store, for trying out, on loopback only."`
	UpstreamFile    filled        `group:"Serving" placeholder:"FILE" help:"A file that holds the URL of --upstream, such as a mounted secret."`
	Embedded        bool          `group:"Serving" help:"Serve the in-memory store to other machines too, for trying out: nothing is kept, and no other proxy knows of its locks."`
	UpstreamMode    string        `advanced:"" group:"Serving" enum:"shared,dedicated" default:"shared" placeholder:"MODE" help:"shared: plain requests of many clients go by a few shared connections, all others by the client's own. dedicated: everything goes by the client's own (default ${default})."`
	UpstreamConns   int           `advanced:"" group:"Serving" default:"1" placeholder:"N" help:"Connections that the clients of one user, database and protocol share at most (default ${default})."`
	HomeIdle        time.Duration `advanced:"" group:"Serving" default:"0" placeholder:"DURATION" help:"After how long a client's own connection to Redis is closed that it has not needed, if nothing was changed on it; it is opened again on demand. 0 is never (default ${default})."`
	ClusterAnnounce string        `advanced:"" group:"Serving" placeholder:"HOST:PORT" help:"In front of a Redis Cluster: the address that clients which know Redis Cluster are told to use (default: the one that each has come to)."`
	DialTimeout     time.Duration `advanced:"" group:"Serving" default:"5s" placeholder:"DURATION" help:"For connecting and logging in to the upstream (default ${default})."`
	ShutdownTimeout time.Duration `group:"Serving" default:"10s" placeholder:"DURATION" help:"After SIGTERM or SIGINT: for running commands and transactions to finish and locks to be released (default ${default})."`
	ShutdownDelay   time.Duration `group:"Serving" default:"0s" placeholder:"DURATION" help:"How long after SIGTERM or SIGINT clients are served as before while /readyz says no, so that balancers send them elsewhere (default ${default})."`
	Handover        string        `advanced:"" group:"Serving" placeholder:"PATH" help:"A Unix socket by which a new process takes over from a running one: start it with the same --listen and --handover, and the running one hands it the listening socket, finishes and ends."`

	ProxyProtocolFrom string        `group:"Serving" placeholder:"CIDR,..." help:"Networks whose connections begin with a PROXY protocol header, version 1 or 2, such as a load balancer's; one without is closed. From elsewhere such a header is no more than a bad request."`
	HandshakeTimeout  time.Duration `advanced:"" group:"Serving" default:"10s" placeholder:"DURATION" help:"For a client's PROXY header and TLS handshake (default ${default})."`

	TLSCert            string `name:"tls-cert" group:"TLS" placeholder:"FILE" help:"Serve clients with TLS: the certificate and its chain, PEM. SIGHUP reads all of these files again; if one is bad, those before stay in use."`
	TLSKey             string `name:"tls-key" group:"TLS" placeholder:"FILE" help:"The key of --tls-cert, PEM."`
	TLSClientCA        string `name:"tls-client-ca" group:"TLS" placeholder:"FILE" help:"Let in only clients with a certificate that one of these authorities has signed, PEM."`
	UpstreamCA         string `group:"TLS" placeholder:"FILE" help:"The authorities that may have signed the certificate of a rediss:// upstream, PEM (default: the system's)."`
	UpstreamCert       string `group:"TLS" placeholder:"FILE" help:"The certificate to show to the upstream, PEM."`
	UpstreamKey        string `group:"TLS" placeholder:"FILE" help:"The key of --upstream-cert, PEM."`
	UpstreamServerName string `advanced:"" group:"TLS" placeholder:"NAME" help:"The name that the upstream's certificate must have (default: the URL's host; of a cluster or of what Sentinels name, each server's)."`

	MaxClients   int  `group:"Limits" default:"10000" placeholder:"N" help:"Clients at one time; more are refused (default ${default})."`
	ClientBuffer size `advanced:"" group:"Limits" default:"1mb" placeholder:"SIZE" help:"Largest request that is held whole: a lock command, AUTH, HELLO, CLIENT or COMMAND; others are streamed. Sizes are written as in redis.conf: 64kb, 1mb, 2gb (default ${default})."`
	MaxUnread    size `advanced:"" group:"Limits" default:"1gb" placeholder:"SIZE" help:"Room in temporary files for replies that slow clients have not read yet, all together; a client for whose replies none is left is closed, and the log says so (default ${default})."`
	MaxArgs      int  `advanced:"" group:"Limits" default:"2147483647" placeholder:"N" help:"Most arguments of one request (default ${default}, which is Redis's)."`
	MaxBulk      size `advanced:"" group:"Limits" default:"512mb" placeholder:"SIZE" help:"Longest argument: the upstream's proto-max-bulk-len (default ${default})."`
	MaxInline    size `advanced:"" group:"Limits" default:"64kb" placeholder:"SIZE" help:"Longest inline request (default ${default}, which is Redis's)."`

	MaxTimeout     time.Duration `group:"Locks" default:"24h" placeholder:"DURATION" help:"Longest timeout that LOCK accepts (default ${default})."`
	TimestampUnit  string        `advanced:"" group:"Locks" enum:"ms,s" default:"ms" placeholder:"ms|s" help:"Unit of the expiry time written at a lock's key: what the foreign clients (SETNX) next to LOCK use (default ${default})."`
	FenceRetention time.Duration `advanced:"" group:"Locks" default:"10m" placeholder:"DURATION" help:"How long a lock's last token is remembered after its end, so that tokens rise even if the upstream's clock steps back (default ${default})."`

	Park     time.Duration `group:"Locks" default:"0s" placeholder:"DURATION" help:"Let clients of other lock libraries wait in line: by how much the nil of a SET key value NX PX|EX may be delayed for a lock that was seen being taken. Released meanwhile, it is given first come, first served. 0 is not at all (default ${default})."`
	ParkKeys string        `group:"Locks" default:"*" placeholder:"PATTERN" help:"The keys that --park is for, a pattern as for KEYS (default ${default})."`

	durabilityOptions `embed:""`

	AdminOptions

	LogLevel  string `group:"Logging" enum:"trace,debug,info,warn,error,off" default:"info" placeholder:"LEVEL" help:"trace, debug, info, warn, error or off (default ${default})."`
	LogFormat string `group:"Logging" enum:"text,json" default:"text" placeholder:"text|json" help:"One line of text, or of JSON, per event (default ${default})."`

	upstream *upstream.Upstream
	networks []netip.Prefix // of ProxyProtocolFrom
}

// check looks at what the types alone don't say.
func (o *options) check() error {
	for _, bounded := range []struct {
		flag     string
		value    time.Duration
		min, max time.Duration
	}{
		{"max-timeout", o.MaxTimeout, time.Millisecond, 10 * 365 * 24 * time.Hour},
		{"fence-retention", o.FenceRetention, time.Second, 365 * 24 * time.Hour},
		{"dial-timeout", o.DialTimeout, time.Millisecond, time.Hour},
		{"shutdown-timeout", o.ShutdownTimeout, 0, time.Hour},
		{"shutdown-delay", o.ShutdownDelay, 0, time.Hour},
		{"handshake-timeout", o.HandshakeTimeout, time.Millisecond, time.Hour},
		{"home-idle", o.HomeIdle, 0, 365 * 24 * time.Hour},
		{"park", o.Park, 0, time.Minute},
	} {
		if bounded.value < bounded.min || bounded.value > bounded.max {
			return fmt.Errorf("--%s is %v: want %v to %v", bounded.flag, bounded.value, bounded.min,
				bounded.max)
		}
	}
	for _, bounded := range []struct {
		flag            string
		value, min, max size
	}{
		{"max-clients", size(o.MaxClients), 1, math.MaxInt32},
		{"upstream-conns", size(o.UpstreamConns), 1, 1 << 10},
		{"client-buffer", o.ClientBuffer, 64 << 10, 1 << 30},
		{"max-unread", o.MaxUnread, 1 << 20, 1 << 50},
		{"max-args", size(o.MaxArgs), 1, resp.MaxArgCount},
		{"max-bulk", o.MaxBulk, 1 << 10, 1 << 40},
		{"max-inline", o.MaxInline, 64, o.ClientBuffer},
	} {
		if bounded.value < bounded.min || bounded.value > bounded.max {
			return fmt.Errorf("--%s is %d: want %d to %d", bounded.flag, bounded.value, bounded.min,
				bounded.max)
		}
	}
	for _, check := range []func() error{
		o.readSecrets, o.AdminOptions.check, o.checkListen, o.checkUpstream, o.checkEmbedded,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return o.durabilityOptions.check(o)
}

func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	n, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil && host != "" && n > 0
}

func (o *options) checkListen() (err error) {
	path, isUnix := o.socketPath()
	switch {
	case o.Handover != "" && !strings.HasPrefix(o.Handover, "/"):
		return errors.New("--handover: want an absolute path, as in /run/lockproxy/handover.sock")
	case len(o.Handover) > maxSocketPath-len(".4194304"):
		return fmt.Errorf("--handover: the path can have %d bytes, this one has %d",
			maxSocketPath-len(".4194304"), len(o.Handover))
	case o.Handover != "" && o.Upstream == "":
		return errors.New("--handover needs --upstream: the in-memory store can't be handed over")
	case isUnix && !strings.HasPrefix(path, "/"):
		return errors.New("--listen: want unix:// and an absolute path, as in " +
			"unix:///run/lockproxy.sock")
	case isUnix && len(path) > maxSocketPath:
		return fmt.Errorf("--listen: the path of a Unix socket can have %d bytes, this one has %d",
			maxSocketPath, len(path))
	case isUnix && o.ProxyProtocolFrom != "":
		return errors.New("--proxy-protocol-from names networks, and a Unix socket has none: " +
			"leave one of the two out")
	case o.ClusterAnnounce != "" && !isHostPort(o.ClusterAnnounce):
		return errors.New("--cluster-announce: want host:port")
	case (o.TLSCert == "") != (o.TLSKey == ""):
		return errors.New("--tls-cert and --tls-key belong together: give both")
	case o.TLSClientCA != "" && o.TLSCert == "":
		return errors.New("--tls-client-ca needs --tls-cert and --tls-key")
	case o.ProxyProtocolFrom != "":
		if o.networks, err = proxy.ParseNetworks(o.ProxyProtocolFrom); err != nil {
			return fmt.Errorf("--proxy-protocol-from: %w", err)
		}
	}
	return nil
}

func (o *options) checkUpstream() (err error) {
	if o.Upstream != "" {
		if o.upstream, err = upstream.Parse(string(o.Upstream)); err != nil {
			return fmt.Errorf("--upstream: %w", err)
		}
	}
	if (o.UpstreamCert == "") != (o.UpstreamKey == "") {
		return errors.New("--upstream-cert and --upstream-key belong together: give both")
	}
	if o.upstream != nil && o.upstream.TLS() != nil {
		return nil
	}
	for _, only := range []struct{ flag, value string }{
		{"upstream-ca", o.UpstreamCA}, {"upstream-cert", o.UpstreamCert},
		{"upstream-server-name", o.UpstreamServerName},
	} {
		if only.value != "" {
			return fmt.Errorf("--%s is for TLS: write --upstream as rediss://", only.flag)
		}
	}
	return nil
}

// checkEmbedded refuses to give other machines locks that nothing keeps, unless that is asked for.
func (o *options) checkEmbedded() error {
	switch {
	case o.Embedded && o.Upstream != "":
		return errors.New("--embedded is the in-memory store, and --upstream another Redis: " +
			"leave one of the two out")
	case o.upstream == nil && !o.Embedded && o.isPublic():
		return fmt.Errorf("--listen %s is open to other machines: name a Redis with --upstream "+
			"redis://host:port, or serve the in-memory store with --embedded, for trying out",
			o.Listen)
	}
	return nil
}

// isPublic reports whether clients on other machines can connect to --listen.
func (o *options) isPublic() bool {
	if _, isUnix := o.socketPath(); isUnix || o.Listen == fromSystemd {
		return false
	}
	addr, err := net.ResolveTCPAddr("tcp", o.Listen)
	return err == nil && !isLoopback(addr) // listening tells of an error
}

func (o *options) serverConfig(upstream *upstream.Upstream, log hclog.Logger) proxy.Config {
	return proxy.Config{
		Upstream:        upstream,
		UpstreamConns:   o.UpstreamConns,
		HomeIdle:        o.HomeIdle,
		Dedicated:       o.UpstreamMode == "dedicated",
		ClusterAnnounce: o.ClusterAnnounce,
		Locks: lockcmd.Config{MaxTimeout: o.MaxTimeout, FenceRetention: o.FenceRetention,
			Seconds: o.TimestampUnit == "s", Durability: o.durability()},
		Limits: resp.Limits{
			Args: o.MaxArgs, Bulk: int64(o.MaxBulk), Inline: int(o.MaxInline),
		},
		MaxClients:  o.MaxClients,
		DialTimeout: o.DialTimeout,
		Logger:      log,

		Park:     o.Park,
		ParkKeys: o.ParkKeys,

		ClientBuffer:      int(o.ClientBuffer),
		MaxUnread:         int64(o.MaxUnread),
		ProxyProtocolFrom: o.networks,
		HandshakeTimeout:  o.HandshakeTimeout,
	}
}
