package passthrough

// An upstream that is a Redis Cluster: what package cluster makes one connection of.

import (
	"context"
	"errors"
	"fmt"
	"net"
	neturl "net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/cluster"
	"lockproxy/internal/resp"
)

// clusterPort is where a node listens unless the URL says otherwise.
const clusterPort = "6379"

// clusterForm is what the URL of a cluster looks like.
const clusterForm = "redis+cluster://[user:pass@]host:port,host:port"

// parseClusterURL reads redis+cluster:// or, for TLS to the nodes, rediss+cluster://. The hosts are some of the nodes: they tell the
// others. An error never contains the URL, which may hold a password.
func parseClusterURL(scheme, rest string) (*Upstream, error) {
	if strings.Contains(rest, "#") || strings.Count(rest, "@") > 1 {
		return nil, fmt.Errorf("not a usable %s URL (it is not shown here since it may hold a password): want %s, with # / ? @ in a password written as %%23 %%2F %%3F %%40", scheme, clusterForm)
	}
	login, place := "", rest
	if before, after, found := strings.Cut(rest, "@"); found {
		login, place = before+"@", after
	}
	hosts, tail := place, ""
	if i := strings.IndexAny(place, "/?"); i >= 0 {
		hosts, tail = place[:i], place[i:]
	}
	seeds, err := parseAddrs(hosts, clusterPort)
	if err != nil {
		return nil, fmt.Errorf("the nodes' addresses are not host:port,host:port: want %s", clusterForm)
	}
	tlsScheme, _, _ := strings.Cut(scheme, "+")
	parsed, err := neturl.Parse(tlsScheme + "://" + login + "cluster" + tail)
	if err != nil {
		return nil, fmt.Errorf("not a URL (it is not shown here since it may hold a password): want %s", clusterForm)
	}
	if path := strings.Trim(parsed.Path, "/"); path != "" && path != "0" {
		return nil, fmt.Errorf("a cluster has no database but 0: want %s", clusterForm)
	}
	for name := range parsed.Query() {
		if name != "skip_verify" || tlsScheme != "rediss" {
			return nil, fmt.Errorf("option %q in the %s URL has no effect here: leave it out", name, scheme)
		}
	}
	opt, err := redis.ParseURL(parsed.String())
	if err != nil {
		return nil, fmt.Errorf("not a usable %s URL: want %s", scheme, clusterForm)
	}
	if opt.TLSConfig != nil {
		opt.TLSConfig.ServerName = "" // each node's own
	}
	opt.Addr = strings.Join(seeds, ",")
	u := newUpstream(opt)
	u.cluster = cluster.New(seeds)
	return u, nil
}

// IsCluster reports whether the upstream is a Redis Cluster.
func (u *Upstream) IsCluster() bool { return u.cluster != nil }

// ClusterMasters is how many masters serve slots, and whether every slot is served, as far as is known; 0 if the upstream is no cluster.
func (u *Upstream) ClusterMasters() (masters int, whole bool) {
	if u.cluster == nil {
		return 0, false
	}
	return u.cluster.Masters()
}

// nodeTimeout bounds the opening of a connection to a further node of a cluster, if nothing else does.
const nodeTimeout = 5 * time.Second

// connectCluster opens the cluster as one connection. ends says that it ends when a request is lost with a node, instead of answering it.
func (u *Upstream) connectCluster(ctx context.Context, id Identity, ends bool) (net.Conn, error) {
	timeout := nodeTimeout
	if until, ok := ctx.Deadline(); ok {
		timeout = time.Until(until)
	}
	conn, err := u.cluster.Open(ctx, cluster.Options{Dial: u.nodeDialer(id), Proto: max(id.Proto, 2), Timeout: timeout, Failure: nodeFailure, EndOnLoss: ends})
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

// nodeDialer connects to nodes as id.
func (u *Upstream) nodeDialer(id Identity) cluster.Dialer {
	return func(ctx context.Context, addr string) (net.Conn, error) { return u.connectTo(ctx, addr, id) }
}

// Refusal is the reply to a request whose node doesn't let the proxy in, though another did.
func (e *Refused) Refusal() []byte { return resp.AppendError(nil, upstreamPrefix+e.Error()) }

// upstreamPrefix begins the replies that tell of a failure of the upstream.
const upstreamPrefix = "UPSTREAM "

// nodeFailure is the reply to a request that failed with a node.
func nodeFailure(addr string, sent bool, err error) []byte {
	var known *Error
	if errors.As(err, &known) {
		err = known.Err
	}
	return resp.AppendError(nil, upstreamPrefix+(&Error{Addr: addr, Sent: sent, Err: err}).Error())
}

// failureIn reads a reply that says that the upstream's own upstream has failed: a cluster's node, or what is behind another
// lockproxy. It is nil for all others.
func failureIn(raw []byte) error {
	text, is := strings.CutPrefix(string(raw[:min(len(raw), 1024)]), "-"+upstreamPrefix)
	if !is {
		return nil
	}
	text = strings.TrimSpace(text)
	return &nested{text: text, sent: strings.Contains(text, "unknown")}
}

// nested is such a failure.
type nested struct {
	text string
	sent bool
}

func (e *nested) Error() string { return e.text }

// MayHaveRun reports whether the request may have reached its node.
func (e *nested) MayHaveRun() bool { return e.sent }

// followCluster keeps up with the cluster until ctx ends. replaced is called before the first request to a replica that has become a
// master.
func (u *Upstream) followCluster(ctx context.Context, log hclog.Logger, replaced func()) {
	u.cluster.OnReplaced(func(master string) {
		replaced()
		log.Warn("a replica has become a master of the cluster", "upstream", u, "master", master)
	})
	failing := false
	u.cluster.Follow(ctx, u.nodeDialer(u.Initial), func(err error) {
		if ctx.Err() == nil && (err != nil) != failing {
			failing = err != nil
			if failing {
				log.Warn("no node of the cluster tells who serves which slots: what is known of it is used on", "upstream", u, "error", err)
			} else {
				log.Info("the cluster's nodes tell again who serves which slots", "upstream", u)
			}
		}
	})
}
