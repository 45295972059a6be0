package proxy

import (
	"context"
	"strings"
	"time"
)

// Where the upstream polices single connections (timeout, client-output-buffer-limit normal,
// maxmemory-clients), clients share none: no client is closed for what another did, nor kept for
// it.

// limitsEvery is how often the upstream is asked for its limits.
const limitsEvery = 30 * time.Second

// watchLimits suspends lanes while the upstream limits connections, until ctx ends or the upstream
// refuses to tell.
func (s *Server) watchLimits(ctx context.Context) {
	limits := ""
	for ctx.Err() == nil {
		found, err := s.limits(ctx)
		pause := limitsEvery
		switch {
		case mayNotAsk(err):
			s.log.Debug("cannot look whether the upstream limits single connections", "error", err)
			return
		case err != nil:
			pause = checkRetry
		case found != limits:
			limits = found
			s.pool.Suspend(limits != "")
			if limits != "" {
				s.log.Warn("the upstream limits single connections: clients share none, as with "+
					"--upstream-mode dedicated", "limit", limits)
			} else {
				s.log.Info("the upstream does not limit single connections any more: " +
					"clients share them")
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// limits asks for what the upstream allows a client; "" is anything.
func (s *Server) limits(ctx context.Context) (limits string, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	var values [3]string
	// One at a time, as before Redis 7.0.
	for i, name := range [...]string{"client-output-buffer-limit", "maxmemory-clients", "timeout"} {
		found, err := s.prober.ConfigGet(ctx, name).Result()
		if err != nil {
			return "", err
		}
		values[i] = found[name]
	}
	return limitsIn(values[0], values[1], values[2]), nil
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
	for _, limit := range [][2]string{{"maxmemory-clients", memory}, {"timeout", timeout}} {
		if limit[1] != "" && limit[1] != "0" {
			limits = append(limits, limit[0]+" "+limit[1])
		}
	}
	return strings.Join(limits, ", ")
}
