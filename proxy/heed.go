package proxy

// Limits of the upstream's own for its clients. Beyond those for what a client may have it hold (client-output-buffer-limit, maxmemory-clients)
// it closes a connection, and a shared one would be others' too: so nobody shares while there are such limits. Connections in reserve
// leave a part of maxclients to others, and don't stay silent for as long as timeout.

import (
	"context"
	"errors"
	"strconv"
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
		found, err := s.upstreamLimits(ctx)
		var refused redis.Error
		if errors.As(err, &refused) {
			s.log.Debug("cannot look whether the upstream limits what clients have it hold", "error", err)
			return
		}
		if err == nil {
			s.lanes.BoundReserve(found.reserve())
			s.lanes.StayAwake(found.awake())
		}
		if err == nil && found.held != limited {
			limited = found.held
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

// upstreamLimits is what the upstream allows.
type upstreamLimits struct {
	held    string        // what a client may have it hold; "" for anything
	clients int           // maxclients; 0 if it isn't known
	timeout time.Duration // how long a client may be silent; 0 for any time
}

// reserve is how many connections may be in reserve, -1 for any number: a tenth of maxclients is for everybody else.
func (l upstreamLimits) reserve() int {
	if l.clients == 0 {
		return -1
	}
	return l.clients - (l.clients+9)/10
}

// minAwake is how often a connection in reserve is asked something at most, however short the timeout is.
const minAwake = 300 * time.Millisecond

// awake is how long such a connection may be silent; 0 for any time.
func (l upstreamLimits) awake() time.Duration {
	if l.timeout == 0 {
		return 0
	}
	return max(l.timeout/3, minAwake)
}

// upstreamLimits asks for them.
func (s *Server) upstreamLimits(ctx context.Context) (l upstreamLimits, err error) {
	client := s.cfg.Upstream.Client(s.cfg.Upstream.Initial)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	values := map[string]string{}
	for _, name := range []string{"client-output-buffer-limit", "maxmemory-clients", "maxclients", "timeout"} { // one at a time, as before Redis 7.0
		found, err := client.ConfigGet(ctx, name).Result()
		if err != nil {
			return l, err
		}
		values[name] = found[name]
	}
	l.held = limitsIn(values["client-output-buffer-limit"], values["maxmemory-clients"])
	l.clients, _ = strconv.Atoi(values["maxclients"]) // 0 if it is none
	seconds, _ := strconv.Atoi(values["timeout"])
	l.timeout = time.Duration(max(0, seconds)) * time.Second
	return l, nil
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
