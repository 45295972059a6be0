package main

import (
	"errors"
	"fmt"
	"time"

	"lockproxy/lockcmd"
)

// durabilityOptions are about upstreams with replicas, of which another may become the upstream.
type durabilityOptions struct {
	SentinelUser         string `advanced:"" group:"Replicas" placeholder:"NAME" help:"The user to log in to the Sentinels of a redis+sentinel:// upstream as."`
	SentinelPassword     string `advanced:"" group:"Replicas" placeholder:"PASSWORD" help:"Its password. Others on this machine may see a command line: set LOCKPROXY_SENTINEL_PASSWORD instead."`
	SentinelPasswordFile filled `advanced:"" group:"Replicas" placeholder:"FILE" help:"A file that holds --sentinel-password, such as a mounted secret."`

	MinReplicas    int           `group:"Replicas" default:"0" placeholder:"N" help:"Give out a lock only once so many replicas have it; else it is taken back and the answer is NOREPLICAS (default ${default}). See docs/durability.md for what that gives."`
	ReplicaTimeout time.Duration `advanced:"" group:"Replicas" default:"500ms" placeholder:"DURATION" help:"How long they may take for that (default ${default})."`
	TakeoverGuard  time.Duration `advanced:"" group:"Replicas" default:"0s" placeholder:"DURATION" help:"How long after a lock's expiry nobody else gets it, for servers whose clocks differ (default ${default}). The same at every proxy."`
	FailoverHold   time.Duration `advanced:"" group:"Replicas" default:"0s" placeholder:"DURATION" help:"Give out no lock for so long after Sentinels have named a new master, or a replica has become one of a cluster: it may lack the last locks of the old one (default ${default})."`
}

// check looks at what the types alone don't say.
func (o *durabilityOptions) check(opts *options) error {
	for _, bounded := range []struct {
		flag     string
		value    time.Duration
		min, max time.Duration
	}{
		{"replica-timeout", o.ReplicaTimeout, time.Millisecond, time.Hour},
		{"takeover-guard", o.TakeoverGuard, 0, time.Hour},
		{"failover-hold", o.FailoverHold, 0, 24 * time.Hour},
	} {
		if bounded.value < bounded.min || bounded.value > bounded.max {
			return fmt.Errorf("--%s is %v: want %v to %v", bounded.flag, bounded.value, bounded.min,
				bounded.max)
		}
	}
	if o.MinReplicas < 0 || o.MinReplicas > 1000 {
		return fmt.Errorf("--min-replicas is %d: want 0 to 1000", o.MinReplicas)
	}
	if o.SentinelUser == "" && o.SentinelPassword == "" {
		return nil
	}
	if opts.upstream == nil || !opts.upstream.SetSentinelLogin(o.SentinelUser, o.SentinelPassword) {
		return errors.New("--sentinel-user and --sentinel-password are for Sentinels: write " +
			"--upstream as redis+sentinel://")
	}
	return nil
}

func (o *durabilityOptions) durability() lockcmd.Durability {
	return lockcmd.Durability{MinReplicas: o.MinReplicas, ReplicaTimeout: o.ReplicaTimeout,
		TakeoverGuard: o.TakeoverGuard, FailoverHold: o.FailoverHold}
}
