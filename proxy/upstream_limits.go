package proxy

// Where the upstream polices single connections (timeout, client-output-buffer-limit normal,
// maxmemory-clients), nobody shares one: no client is closed for what another did, nor kept for it.

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// limitsEvery is how often the upstream's limits are looked at.
const limitsEvery = 30 * time.Second

// watchLimits looks until ctx ends, or the upstream says that it may not.
func (s *Server) watchLimits(ctx context.Context) {
	limits := ""
	for ctx.Err() == nil {
		found, err := s.upstreamLimits(ctx)
		var refused redis.Error
		if errors.As(err, &refused) {
			s.log.Debug("cannot look whether the upstream limits single connections", "error", err)
			return
		}
		if err == nil && found != limits {
			limits = found
			s.lanes.Suspend(limits != "")
			if limits != "" {
				s.log.Warn("the upstream limits single connections: clients share none, as with --upstream-mode dedicated", "limit", limits)
			} else {
				s.log.Info("the upstream does not limit single connections any more: clients share them")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(limitsEvery):
		}
	}
}

// upstreamLimits asks for what the upstream allows a client; "" is anything.
func (s *Server) upstreamLimits(ctx context.Context) (limits string, err error) {
	client := s.cfg.Upstream.Client(s.cfg.Upstream.Initial)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	values := map[string]string{}
	for _, name := range []string{"client-output-buffer-limit", "maxmemory-clients", "timeout"} { // one at a time, as before Redis 7.0
		found, err := client.ConfigGet(ctx, name).Result()
		if err != nil {
			return "", err
		}
		values[name] = found[name]
	}
	return limitsIn(values["client-output-buffer-limit"], values["maxmemory-clients"], values["timeout"]), nil
}

// limitsIn reads "normal 0 0 0 slave …", a number of bytes or percent, and seconds.
func limitsIn(buffers, memory, timeout string) string {
	var limits []string
	words := strings.Fields(buffers)
	for i := 0; i+3 < len(words); i += 4 {
		if words[i] == "normal" && (words[i+1] != "0" || words[i+2] != "0") {
			limits = append(limits, "client-output-buffer-limit "+strings.Join(words[i:i+4], " "))
		}
	}
	for _, l := range []struct{ name, value string }{{"maxmemory-clients", memory}, {"timeout", timeout}} {
		if l.value != "" && l.value != "0" {
			limits = append(limits, l.name+" "+l.value)
		}
	}
	return strings.Join(limits, ", ")
}
