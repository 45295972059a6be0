package proxy

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/upstream"
)

const (
	// checkEvery is the pause between two looks at an upstream that serves.
	checkEvery = 10 * time.Second
	// checkRetry is the pause after the upstream did not serve.
	checkRetry = 5 * time.Second
	// firstLook is how long the upstream has for its first answer, until a line says that there is
	// none.
	firstLook = time.Second
)

// CheckUpstream looks at what the upstream is and how it is set up, again and again until ctx ends.
// It logs what keeps the upstream from serving, or gives out no lock, and when that is over, and what
// the user in --upstream may not do. Once, it logs a line if the upstream would lose locks. It also
// looks whether the upstream closes single
// clients for what they ask (then clients cannot share connections), and keeps it from closing
// clients that wait.
func (s *Server) CheckUpstream(ctx context.Context) {
	loopguard.MayWait()
	limits := limitsWatch{server: s, timeouts: make(chan time.Duration)}
	var awake sync.WaitGroup
	awake.Go(func() { s.keepAwake(ctx, limits.timeouts) }) // ends with ctx
	defer awake.Wait()
	patience, mayAsk, served := firstLook, true, false
	rights := rightsWatch{server: s}
	for {
		info, err := s.look(ctx, patience, mayAsk)
		if ctx.Err() != nil {
			return
		}
		patience = max(firstLook, s.cfg.DialTimeout)
		if mayAsk = mayAsk && (info != nil || err != nil); err == nil && !served {
			served = true
			s.warnOfUpstream(info)
		}
		rights.look(ctx, err == nil)
		pause := checkEvery
		if served && !limits.look(ctx) || err != nil {
			pause = checkRetry
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// look looks whether the upstream would serve a new client, and reports what keeps it from that, or
// from giving out locks. mayAsk says that the proxy's own user may have the right to INFO. info is
// the answer to that; nil without an error if it may not.
func (s *Server) look(
	ctx context.Context, patience time.Duration, mayAsk bool,
) (info map[string]string, err error) {
	once, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if mayAsk {
		info, err = s.cfg.Upstream.Diagnose(once)
	} else {
		err = s.ping(once)
	}
	fault := err
	if err == nil {
		fault = s.missingReplicas(info)
	}
	var noWrites *upstream.KeepsNoLocks
	switch {
	case ctx.Err() != nil, s.ranOutOfFiles("ask the upstream", fault):
	case fault == nil:
		s.status.serves(s.log, s.cfg.Upstream)
	case once.Err() != nil:
		if s.status.fails("no answer", false) {
			s.log.Warn("the upstream does not answer: clients wait, or are answered UPSTREAM",
				"upstream", s.cfg.Upstream, "within", patience.String(), "error", fault)
		}
	case !s.status.fails(fault.Error(), info != nil):
	case err == nil || errors.As(err, &noWrites):
		s.log.Error("the upstream serves, but can keep no locks", "upstream", s.cfg.Upstream,
			"error", fault)
	default:
		s.log.Error("the upstream does not serve: clients are answered with errors; it is "+
			"asked again", "every", checkRetry.String(), "error", fault)
	}
	return info, err
}

// missingReplicas is an error if fewer replicas are connected than a LOCK needs. Those in a cluster
// are of one master.
func (s *Server) missingReplicas(info map[string]string) error {
	connected, err := strconv.Atoi(info["connected_slaves"])
	if err != nil || connected >= s.cfg.Locks.MinReplicas || info["info_node"] != "" {
		return nil
	}
	return fmt.Errorf("%d replicas are connected, and --min-replicas is %d: LOCK is answered "+
		"NOREPLICAS; mend the replicas", connected, s.cfg.Locks.MinReplicas)
}

// warnOfUpstream logs what an operator should know about how the upstream is set up.
func (s *Server) warnOfUpstream(info map[string]string) {
	if info == nil {
		s.log.Debug("cannot check whether the upstream may evict locks: the user in --upstream " +
			"may not run INFO")
		return
	}
	s.warnOfNoPassword()
	s.warnOfEviction(info)
}

// warnOfNoPassword warns if other machines can run commands without a login. Redis itself refuses
// them then (protected mode), but the proxy is a local client to it.
func (s *Server) warnOfNoPassword() {
	if s.cfg.Public && !s.cfg.Upstream.Initial.LoggedIn {
		s.log.Warn("other machines can connect, and the upstream requires no password: every " +
			"client that can connect may run any command; set requirepass there, or let in only " +
			"clients with a certificate by --tls-client-ca")
	}
}

// warnOfEviction warns if the upstream drops keys when its memory is full: any policy but
// noeviction may pick a lock, and its lock record with the token.
func (s *Server) warnOfEviction(info map[string]string) {
	policy, limit := info["maxmemory_policy"], info["maxmemory"]
	switch {
	case policy == "" || policy == "noeviction":
	case limit == "0":
		s.log.Info("the upstream would evict locks if it had a maxmemory",
			"maxmemory_policy", policy)
	default:
		s.log.Warn("the upstream may evict locks when its memory is full: set maxmemory-policy "+
			"noeviction, or keep locks in a Redis of their own",
			"maxmemory_policy", policy, "maxmemory", limit)
	}
}
