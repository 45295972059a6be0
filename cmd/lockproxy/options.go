package main

import (
	"errors"
	"fmt"
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
	servingOptions    `embed:"" group:"Serving"`
	upstreamOptions   `embed:"" group:"Upstream"`
	tlsOptions        `embed:"" group:"TLS"`
	limitOptions      `embed:"" group:"Limits"`
	lockOptions       `embed:"" group:"Locks"`
	durabilityOptions `embed:""`
	AdminOptions      `embed:"" group:"Watching"`
	loggingOptions    `embed:"" group:"Logging"`

	upstream *upstream.Upstream
	networks []netip.Prefix // of ProxyProtocolFrom
	file     string         // the configuration file
	fromFile settings       // what it says
}

// servingOptions are about listening, starting and stopping.
type servingOptions struct {
	Config string `placeholder:"FILE"`

	Listen            string        `default:"127.0.0.1:6380" placeholder:"ADDRESS"`
	ListenMode        fileMode      `advanced:"" default:"0700" range:"0000 to 0777" placeholder:"MODE"`
	ProxyProtocolFrom string        `placeholder:"CIDR,..."`
	HandshakeTimeout  time.Duration `advanced:"" default:"10s" range:"1ms to 1h"`
	ShutdownTimeout   time.Duration `default:"10s" range:"0s to 1h"`
	ShutdownDelay     time.Duration `default:"0s" range:"0s to 1h"`
	Handover          string        `advanced:"" placeholder:"PATH"`
	HandoverUnchecked bool          `advanced:""`
}

// upstreamOptions are about the connection to Redis.
type upstreamOptions struct {
	Upstream        string `placeholder:"URL"`
	UpstreamFile    string `placeholder:"FILE"`
	Embedded        bool
	UpstreamMode    string        `advanced:"" enum:"shared,dedicated" default:"shared" placeholder:"MODE"`
	UpstreamConns   int           `advanced:"" default:"1" range:"1 to 1024"`
	HomeIdle        time.Duration `name:"home-idle" advanced:"" default:"10s" range:"0s to 8760h"`
	DialTimeout     time.Duration `name:"upstream-dial-timeout" advanced:"" default:"5s" range:"1ms to 1h"`
	ClusterAnnounce string        `advanced:"" placeholder:"HOST:PORT"`

	UpstreamCA         string `name:"upstream-tls-ca" placeholder:"FILE"`
	UpstreamCert       string `name:"upstream-tls-cert" placeholder:"FILE"`
	UpstreamKey        string `name:"upstream-tls-key" placeholder:"FILE"`
	UpstreamServerName string `name:"upstream-tls-server-name" advanced:"" placeholder:"NAME"`
}

// tlsOptions are about TLS with clients.
type tlsOptions struct {
	TLSCert     string `name:"tls-cert" placeholder:"FILE"`
	TLSKey      string `name:"tls-key" placeholder:"FILE"`
	TLSClientCA string `name:"tls-client-ca" placeholder:"FILE"`
}

// limitOptions bound what clients can ask for.
type limitOptions struct {
	MaxClients   int  `default:"10000" range:"1 to 2147483647"`
	ClientBuffer size `advanced:"" default:"1mb" range:"64kb to 1gb"`
	MaxUnread    size `advanced:"" default:"1gb" range:"1mb to 1024gb"`
	MaxArgs      int  `advanced:"" default:"2147483647" range:"1 to 2147483647"`
	MaxBulk      size `advanced:"" default:"512mb" range:"1kb to 1024gb"`
	MaxInline    size `advanced:"" default:"64kb" range:"64b to 1gb"`
}

// lockOptions are about the lock commands.
type lockOptions struct {
	MaxTimeout     time.Duration `default:"24h" range:"1ms to 87600h"`
	TimestampUnit  string        `advanced:"" enum:"ms,s" default:"ms" placeholder:"ms|s"`
	FenceRetention time.Duration `advanced:"" default:"10m" range:"1s to 8760h"`

	Deadlock string `enum:"refuse,log,off" default:"refuse" placeholder:"MODE"`

	Park     time.Duration `default:"0s" range:"0s to 1m"`
	ParkKeys string        `advanced:"" default:"*" placeholder:"PATTERN"`
}

// loggingOptions are about the log.
type loggingOptions struct {
	LogLevel  string `enum:"trace,debug,info,warn,error,off" default:"info" placeholder:"LEVEL"`
	LogFormat string `enum:"text,json" default:"text" placeholder:"text|json"`
}

// check checks what the types alone do not ensure.
func (o *options) check() error {
	if o.MaxInline > o.ClientBuffer {
		return fmt.Errorf("--max-inline is %d: want at most --client-buffer, which is %d",
			o.MaxInline, o.ClientBuffer)
	}
	for _, check := range []func() error{
		o.readSecrets, o.AdminOptions.check, o.checkListen, o.checkUpstream, o.checkEmbedded,
		o.checkAlone,
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return o.durabilityOptions.check(o)
}

func isHostPort(addr string) bool {
	return isListenAddr(addr) && !strings.HasPrefix(addr, ":") && !strings.HasSuffix(addr, ":0")
}

// isListenAddr reports whether addr is host:port, where the host can be left out.
func isListenAddr(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	_, portErr := strconv.ParseUint(port, 10, 16)
	return err == nil && portErr == nil
}

func (o *options) checkListen() (err error) {
	path, isUnix := o.socketPath()
	switch {
	case o.Handover != "" && !strings.HasPrefix(o.Handover, "/"):
		return errors.New("--handover: want an absolute path, as in /run/lockproxy/handover.sock")
	case len(o.Handover) > maxSocketPath-len(".4194304"):
		return fmt.Errorf("--handover: the path can have at most %d bytes; this one has %d",
			maxSocketPath-len(".4194304"), len(o.Handover))
	case o.Handover != "" && o.Upstream == "":
		return errors.New("--handover needs --upstream: the in-memory store can't be handed over")
	case !isUnix && o.Listen != fromSystemd && !isListenAddr(o.Listen):
		return fmt.Errorf("--listen %s: want host:port with a port up to 65535, as in "+
			"127.0.0.1:6380, or unix:///path, or systemd", o.Listen)
	case isUnix && !strings.HasPrefix(path, "/"):
		return errors.New("--listen: want unix:// and an absolute path, as in " +
			"unix:///run/lockproxy.sock")
	case isUnix && len(path) > maxSocketPath:
		return fmt.Errorf("--listen: the path of a Unix socket can have at most %d bytes; this "+
			"one has %d", maxSocketPath, len(path))
	case isUnix && o.ProxyProtocolFrom != "":
		return errors.New("--proxy-protocol-from names networks, and a Unix socket has none: " +
			"leave one of the two out")
	case o.ClusterAnnounce != "" && !isHostPort(o.ClusterAnnounce):
		return fmt.Errorf("--cluster-announce %s: want host:port, as in locks.example.com:6380",
			o.ClusterAnnounce)
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
		if o.upstream, err = upstream.Parse(o.Upstream); err != nil {
			return fmt.Errorf("--upstream: %w", err)
		}
	}
	if (o.UpstreamCert == "") != (o.UpstreamKey == "") {
		return errors.New("--upstream-tls-cert and --upstream-tls-key belong together: give both")
	}
	if o.upstream != nil && o.upstream.TLS() != nil {
		return nil
	}
	for _, only := range []struct{ flag, value string }{
		{"upstream-tls-ca", o.UpstreamCA}, {"upstream-tls-cert", o.UpstreamCert},
		{"upstream-tls-server-name", o.UpstreamServerName},
	} {
		if only.value != "" {
			return fmt.Errorf("--%s is for TLS: write --upstream as rediss://", only.flag)
		}
	}
	return nil
}

// checkEmbedded refuses to serve the in-memory store to other machines without --embedded.
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

// checkAlone refuses flags that say something and change nothing without another one.
func (o *options) checkAlone() error {
	_, isUnix := o.socketPath()
	for _, f := range []struct {
		flag, needs string
		given, met  bool
	}{
		{"listen-mode", "--listen unix:///path", o.ListenMode != 0o700, isUnix},
		{"handover-unchecked", "--handover", o.HandoverUnchecked, o.Handover != ""},
		{"park-keys", "--park", o.ParkKeys != "*", o.Park > 0},
		{"cluster-announce", "--upstream redis+cluster://host:port", o.ClusterAnnounce != "",
			o.upstream != nil && o.upstream.IsCluster()},
		{"replica-timeout", "--min-replicas or --require-fsync",
			o.ReplicaTimeout != 500*time.Millisecond, o.MinReplicas > 0 || o.RequireFsync},
	} {
		if f.given && !f.met {
			return fmt.Errorf("--%s changes nothing without %s: give both, or leave it out", f.flag,
				f.needs)
		}
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

// homeIdle is when homes of clients are closed that share connections otherwise.
func (o *options) homeIdle() time.Duration {
	if o.UpstreamMode == "dedicated" {
		return 0
	}
	return o.HomeIdle
}

func (o *options) serverConfig(upstream *upstream.Upstream, log hclog.Logger) proxy.Config {
	return proxy.Config{
		Upstream:        upstream,
		UpstreamConns:   o.UpstreamConns,
		HomeIdle:        o.homeIdle(),
		Dedicated:       o.UpstreamMode == "dedicated",
		ClusterAnnounce: o.ClusterAnnounce,
		Locks: lockcmd.Config{MaxTimeout: o.MaxTimeout, FenceRetention: o.FenceRetention,
			Seconds: o.TimestampUnit == "s", Deadlock: o.Deadlock, Durability: o.durability()},
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
