package proxy

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// adviseRetry is how long after a failure to reach the upstream it is looked at again.
const checkRetry = 5 * time.Second

// CheckUpstream looks at what the upstream is set up to do, until ctx ends: once whether it would lose locks, of which it logs a warning, and from time
// to time whether it closes clients for what they ask, since then they can't share connections. It waits for an upstream that is down;
// one that doesn't let the proxy's own user look is left alone.
func (s *Server) CheckUpstream(ctx context.Context) {
	s.checkEviction(ctx)
	s.watchLimits(ctx)
}

func (s *Server) checkEviction(ctx context.Context) {
	client := s.cfg.Upstream.Client(s.cfg.Upstream.Initial)
	defer client.Close()
	for {
		look, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
		info, err := client.Info(look, "memory").Result()
		cancel()
		var refused redis.Error
		switch {
		case err == nil:
			s.warnOfEviction(info)
			return
		case errors.As(err, &refused):
			s.log.Debug("cannot look whether the upstream may evict locks", "error", err)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(checkRetry):
		}
	}
}

// adviseOnMemory warns if the upstream drops keys when its memory is full: any policy but noeviction may pick a lock, and the
// record that remembers its token.
func (s *Server) warnOfEviction(info string) {
	policy, limit := infoField(info, "maxmemory_policy"), infoField(info, "maxmemory")
	if policy == "" || policy == "noeviction" {
		return
	}
	const advice = "the upstream may evict locks when its memory is full: set maxmemory-policy noeviction, or keep locks in a Redis of their own"
	if limit == "0" {
		s.log.Info("the upstream would evict locks if it had a maxmemory", "maxmemory_policy", policy)
		return
	}
	s.log.Warn(advice, "maxmemory_policy", policy, "maxmemory", limit)
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
