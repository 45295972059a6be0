package proxy

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/loopguard"
)

// checkRetry is the pause after the upstream could not be asked.
const checkRetry = 5 * time.Second

// firstLook is how long the upstream has for its first answer, until a line says that there is none.
const firstLook = time.Second

// CheckUpstream checks what the upstream is and how it is set up, until ctx ends. It logs at once
// what keeps the upstream from serving, and again when that changes. Once, it logs a line if the
// upstream would lose locks, or if no lock could be given out. From time to time it checks whether
// the upstream closes single clients for what they ask: then clients cannot share connections. It
// waits for an upstream that is down or busy. It gives up if the proxy's own user may not ask.
func (s *Server) CheckUpstream(ctx context.Context) {
	if info := s.awaitUpstream(ctx); ctx.Err() == nil {
		switch {
		case info != nil:
			s.warnOfNoPassword()
			s.warnOfEviction(info)
		case redis.HasErrorPrefix(s.prober.Ping(ctx).Err(), "NOAUTH"):
			s.log.Info("the upstream wants a login, and --upstream has none: clients that don't " +
				"log in themselves are answered NOAUTH")
		default:
			s.log.Debug("cannot look whether the upstream may evict locks: its user may not ask")
		}
		s.checkFsync(ctx)
	}
	s.watchLimits(ctx)
}

// awaitUpstream asks until the upstream would serve clients, and logs why it would not. It returns
// the answer to INFO; nil if the proxy's own user may not ask.
func (s *Server) awaitUpstream(ctx context.Context) map[string]string {
	loopguard.MayWait()
	for last, patience := "", firstLook; ; patience = max(firstLook, s.cfg.DialTimeout) {
		once, cancel := context.WithTimeout(ctx, patience)
		info, err := s.cfg.Upstream.Diagnose(once)
		late := once.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if last != "" {
				s.log.Info("the upstream serves now", "upstream", s.cfg.Upstream)
			}
			return info
		case err.Error() == last:
		case late:
			s.log.Warn("the upstream has not answered yet: clients wait, or are answered UPSTREAM",
				"upstream", s.cfg.Upstream, "within", patience.String(), "error", err)
		default:
			s.log.Error("the upstream does not serve: clients are answered with errors; it is "+
				"asked again", "every", checkRetry.String(), "error", err)
		}
		last = err.Error()
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(checkRetry):
		}
	}
}

// mayNotAsk reports whether the upstream will always refuse a request: for want of a right, or
// because it does not know the command. Other errors, such as BUSY, pass.
func mayNotAsk(err error) bool {
	var refused redis.Error
	if !errors.As(err, &refused) {
		return false
	}
	code, _, _ := strings.Cut(refused.Error(), " ")
	return code == "ERR" || code == "NOPERM" || code == "NOAUTH"
}

// checkFsync logs an error if the upstream cannot tell what is on its disk, where --require-fsync
// asks for that.
func (s *Server) checkFsync(ctx context.Context) {
	if !s.cfg.Locks.RequireFsync {
		return
	}
	once, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	err := s.prober.Do(once, "WAITAOF", 1, 0, 1).Err()
	var refused redis.Error
	switch {
	case errors.As(err, &refused) && strings.HasPrefix(refused.Error(), "ERR "):
		s.log.Error("the upstream cannot do --require-fsync, and every LOCK is answered "+
			"NOREPLICAS: it must be Redis 7.2 or later with appendonly yes", "error", err)
	case err != nil:
		s.log.Debug("cannot look whether the upstream can do --require-fsync", "error", err)
	}
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
