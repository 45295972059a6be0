package main

import (
	"errors"
	"time"

	"lockproxy/lockcmd"
)

// durabilityOptions are about upstreams with replicas, one of which can become the upstream.
type durabilityOptions struct {
	SentinelUser         string `advanced:"" group:"Upstream" placeholder:"NAME"`
	SentinelPassword     string `advanced:"" group:"Upstream" placeholder:"PASSWORD"`
	SentinelPasswordFile string `advanced:"" group:"Upstream" placeholder:"FILE"`

	MinReplicas    int           `group:"Replicas" default:"0" range:"0 to 1000"`
	RequireFsync   bool          `advanced:"" group:"Replicas"`
	ReplicaTimeout time.Duration `advanced:"" group:"Replicas" default:"500ms" range:"1ms to 1h"`
	TakeoverGuard  time.Duration `advanced:"" group:"Replicas" default:"0s" range:"0s to 1h"`
	FailoverHold   time.Duration `advanced:"" group:"Replicas" default:"0s" range:"0s to 24h"`
}

// check checks what the types alone do not ensure.
func (o *durabilityOptions) check(opts *options) error {
	switch {
	case o.RequireFsync && opts.upstream == nil:
		return errors.New("--require-fsync needs --upstream: the in-memory store has no disk")
	case o.MinReplicas > 0 && opts.upstream == nil:
		return errors.New("--min-replicas needs --upstream: the in-memory store has no replicas")
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
	return lockcmd.Durability{MinReplicas: o.MinReplicas, RequireFsync: o.RequireFsync,
		ReplicaTimeout: o.ReplicaTimeout, TakeoverGuard: o.TakeoverGuard,
		FailoverHold: o.FailoverHold}
}
