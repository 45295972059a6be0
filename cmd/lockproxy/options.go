package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"github.com/hashicorp/go-hclog"

	"lockproxy/lockcmd"
	"lockproxy/passthrough"
	"lockproxy/proxy"
)

// options is the command line. Every flag is also an environment variable, LOCKPROXY_ and the flag's name in capitals.
type options struct {
	Listen          string        `group:"Serving" default:"127.0.0.1:6380" placeholder:"HOST:PORT" help:"Where clients connect (default ${default})."`
	Upstream        string        `group:"Serving" placeholder:"URL" help:"The Redis to stand in front of: redis://[user:pass@]host:port[/db]. Clients start as this user, in this database. Without it: an in-memory store, for trying out."`
	MaxClients      int           `group:"Serving" default:"10000" placeholder:"N" help:"Clients at one time; more are refused (default ${default})."`
	DialTimeout     time.Duration `group:"Serving" default:"5s" placeholder:"DURATION" help:"For connecting and logging in to the upstream (default ${default})."`
	ShutdownTimeout time.Duration `group:"Serving" default:"10s" placeholder:"DURATION" help:"For running commands to finish after SIGTERM or SIGINT (default ${default})."`

	MaxTimeout     time.Duration `group:"Locks" default:"24h" placeholder:"DURATION" help:"Longest timeout that LOCK accepts (default ${default})."`
	TimestampUnit  string        `group:"Locks" enum:"ms,s" default:"ms" placeholder:"ms|s" help:"Unit of the expiry time written at a lock's key: what the plain SETNX clients beside LOCK use (default ${default})."`
	FenceRetention time.Duration `group:"Locks" default:"10m" placeholder:"DURATION" help:"How long a lock's last token is remembered after its end, so that tokens rise even if the upstream's clock steps back (default ${default})."`

	LogLevel  string `group:"Logging" enum:"trace,debug,info,warn,error,off" default:"info" placeholder:"LEVEL" help:"trace, debug, info, warn, error or off (default ${default})."`
	LogFormat string `group:"Logging" enum:"text,json" default:"text" placeholder:"text|json" help:"One line of text, or of JSON, per event (default ${default})."`

	Version bool `help:"Print the version and exit."`

	upstream *passthrough.Upstream
}

const description = "A Redis proxy with locks: forwards every command to the Redis behind it, and adds LOCK and UNLOCK. " +
	"Every flag can be set as an environment variable: LOCKPROXY_ and its name in capitals, as in LOCKPROXY_MAX_TIMEOUT."

// parseOptions reads flags and environment. done says that all that was asked for has been printed.
func parseOptions(args []string, stdout io.Writer) (opts *options, done bool, err error) {
	opts = &options{}
	exited := false
	parser, err := kong.New(opts, kong.Name("lockproxy"), kong.Description(description), kong.DefaultEnvars("LOCKPROXY"),
		kong.Writers(stdout, io.Discard), kong.Exit(func(int) { exited = true }), kong.ConfigureHelp(kong.HelpOptions{WrapUpperBound: 110}))
	if err != nil {
		return nil, false, err
	}
	if _, err := parser.Parse(args); err != nil && !exited {
		return nil, false, fmt.Errorf("%w; see lockproxy --help", err)
	}
	switch {
	case exited:
		return opts, true, nil
	case opts.Version:
		fmt.Fprintln(stdout, "lockproxy", version)
		return opts, true, nil
	}
	return opts, false, opts.check()
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
	} {
		if bounded.value < bounded.min || bounded.value > bounded.max {
			return fmt.Errorf("--%s is %v: want %v to %v", bounded.flag, bounded.value, bounded.min, bounded.max)
		}
	}
	if o.MaxClients < 1 {
		return errors.New("--max-clients must be at least 1")
	}
	if o.Upstream == "" {
		return nil
	}
	upstream, err := passthrough.ParseURL(strings.TrimSpace(o.Upstream))
	if err != nil {
		return fmt.Errorf("--upstream: %w", err)
	}
	o.upstream = upstream
	return nil
}

func (o *options) serverConfig(upstream *passthrough.Upstream, log hclog.Logger) proxy.Config {
	return proxy.Config{
		Upstream:    upstream,
		Locks:       lockcmd.Config{MaxTimeout: o.MaxTimeout, FenceRetention: o.FenceRetention, Seconds: o.TimestampUnit == "s"},
		MaxClients:  o.MaxClients,
		DialTimeout: o.DialTimeout,
		Logger:      log,
	}
}
