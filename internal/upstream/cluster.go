package upstream

// An upstream that is a Redis Cluster: what package cluster makes one connection of.

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"

	"lockproxy/internal/cluster"
	"lockproxy/internal/eventloop"
)

// IsCluster reports whether the upstream is a Redis Cluster.
func (u *Upstream) IsCluster() bool { return u.cluster != nil }

// ClusterMasters is how many masters serve slots, and whether every slot is served, as far as is
// known; 0 if the upstream is no cluster.
func (u *Upstream) ClusterMasters() (masters int, whole bool) {
	if u.cluster == nil {
		return 0, false
	}
	return u.cluster.Masters()
}

// LearnsByLogin reports whether the upstream is a cluster whose nodes and slots are not known yet.
// A client that logs in there can ask for them.
func (u *Upstream) LearnsByLogin() bool {
	return u.cluster != nil && !u.cluster.Known()
}

// ReadIn makes loops read the nodes of a cluster, on connections of clients and lanes that are
// opened from now on.
func (u *Upstream) ReadIn(loops *eventloop.Loops) { u.loops.Store(loops) }

// nodeTimeout bounds the opening of a connection to a further node of a cluster, if nothing else
// does.
const nodeTimeout = 5 * time.Second

// dialCluster opens the cluster as one connection, for requests of the proxy's own or a client's.
// If one is lost with a node the connection ends, or the client is told.
func (u *Upstream) dialCluster(ctx context.Context, as Setup, own bool) (net.Conn, error) {
	timeout := nodeTimeout
	if until, ok := ctx.Deadline(); ok {
		timeout = time.Until(until)
	}
	options := cluster.Options{
		Dial: u.dialServer, Setup: as.commands(), Timeout: timeout,
		Early: !own, Failure: nodeFailure, EndOnLoss: own,
	}
	if !own {
		options.Loops = u.loops.Load()
	}
	conn, err := u.cluster.Open(ctx, options)
	var known *Error
	var refused *Refused
	switch {
	case err == nil:
		return conn, nil
	case errors.As(err, &known), errors.As(err, &refused):
		return nil, err
	}
	return nil, &Error{Addr: u.Addr, Err: err}
}

// followCluster keeps up with the cluster until ctx ends. replaced is called before the first
// request to a replica that has become a master.
func (u *Upstream) followCluster(ctx context.Context, log hclog.Logger, replaced func()) {
	u.cluster.OnReplaced(func(master string) {
		replaced()
		log.Warn("a replica has become a master of the cluster", "upstream", u, "master", master)
	})
	failing := false
	u.cluster.Follow(ctx, u.dialServer, u.Initial.Login(), func(err error) {
		if ctx.Err() == nil && (err != nil) != failing {
			failing = err != nil
			if failing {
				log.Warn("no node of the cluster says which node serves which slots: "+
					"the last known map stays in use",
					"upstream", u, "error", err)
			} else {
				log.Info("the cluster's nodes again say which node serves which slots",
					"upstream", u)
			}
		}
	})
}
