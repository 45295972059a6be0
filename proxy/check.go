package proxy

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// checkRetry is the pause after the upstream could not be asked.
const checkRetry = 5 * time.Second

// CheckUpstream checks how the upstream is set up, until ctx ends. Once, it logs a line if the
// upstream would lose locks, or if no lock could be given out. From time to time it checks whether
// the upstream closes single clients for what they ask: then clients cannot share connections. It
// waits for an upstream that is down or busy. It gives up if the proxy's own user may not ask.
func (s *Server) CheckUpstream(ctx context.Context) {
	s.checkEviction(ctx)
	s.watchLimits(ctx)
}

// checkEviction asks once, as soon as the upstream answers.
func (s *Server) checkEviction(ctx context.Context) {
	for {
		once, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
		info, err := s.prober.Info(once, "memory").Result()
		cancel()
		switch {
		case err == nil:
			s.warnOfNoPassword()
			s.warnOfEviction(info)
			s.checkFsync(ctx)
			return
		case mayNotAsk(err):
			s.log.Debug("cannot look whether the upstream may evict locks", "error", err)
			s.checkFsync(ctx)
			return
		}
		select {
		case <-ctx.Done():
			return
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
func (s *Server) warnOfEviction(info string) {
	policy, limit := infoField(info, "maxmemory_policy"), infoField(info, "maxmemory")
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

// infoField returns the value of one line of INFO, or "".
func infoField(info, name string) string {
	for line := range strings.SplitSeq(info, "\r\n") {
		if field, value, ok := strings.Cut(line, ":"); ok && field == name {
			return value
		}
	}
	return ""
}
