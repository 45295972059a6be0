package proxy

// Limits of the upstream's own for what a client may have it hold (client-output-buffer-limit, maxmemory-clients). It closes a connection
// beyond them, and on a shared one that would be others' too. So nobody shares while there are such limits.

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// heedEvery is how often they are looked at.
const heedEvery = 30 * time.Second

// heedLimits looks until ctx ends, or the upstream says that it may not.
func (s *Server) heedLimits(ctx context.Context) {
	limited := ""
	for ctx.Err() == nil {
		found, err := s.clientLimits(ctx)
		var refused redis.Error
		if errors.As(err, &refused) {
			s.log.Debug("cannot look whether the upstream limits what clients have it hold", "error", err)
			return
		}
		if err == nil && found != limited {
			limited = found
			s.lanes.Unshare(limited != "")
			if limited != "" {
				s.log.Warn("the upstream closes clients that have it hold much: so that none is closed for another, each has a connection of its own", "limit", limited)
			} else {
				s.log.Info("the upstream has no limits any more for what clients have it hold: they share connections")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(heedEvery):
		}
	}
}

// clientLimits returns the limits that are set, "" if there are none.
func (s *Server) clientLimits(ctx context.Context) (limits string, err error) {
	client := s.cfg.Upstream.Client(s.cfg.Upstream.Initial)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	buffers, err := client.ConfigGet(ctx, "client-output-buffer-limit").Result()
	if err != nil {
		return "", err
	}
	memory, err := client.ConfigGet(ctx, "maxmemory-clients").Result()
	if err != nil {
		return "", err
	}
	return limitsIn(buffers["client-output-buffer-limit"], memory["maxmemory-clients"]), nil
}

// limitsIn reads "normal 0 0 0 slave …" and a number of bytes or percent.
func limitsIn(buffers, memory string) (limits string) {
	words := strings.Fields(buffers)
	for i := 0; i+3 < len(words); i += 4 {
		if words[i] == "normal" && (words[i+1] != "0" || words[i+2] != "0") {
			limits = "client-output-buffer-limit " + strings.Join(words[i:i+4], " ")
		}
	}
	if memory != "" && memory != "0" {
		limits = strings.TrimSpace(limits + " maxmemory-clients " + memory)
	}
	return limits
}
