package proxy

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/loopguard"
)

// Where the upstream polices single connections (timeout, client-output-buffer-limit normal,
// maxmemory-clients), clients share none: no client is closed for what another did, nor kept for
// it.

// limitsWatch suspends lanes while the upstream limits connections.
type limitsWatch struct {
	server   *Server
	refused  bool               // the upstream does not tell its limits
	limits   string             // "" is none
	timeouts chan time.Duration // takes the upstream's timeout for idle clients after each look
}

// look asks for the limits. It returns false if there was no answer.
func (w *limitsWatch) look(ctx context.Context) (ok bool) {
	loopguard.MayWait()
	if w.refused {
		return true
	}
	s := w.server
	limits, timeout, err := s.limits(ctx)
	switch {
	case mayNotAsk(err):
		s.log.Debug("cannot check whether the upstream limits single connections", "error", err)
		w.refused, timeout = true, unknownTimeout
	case err != nil:
		return false
	case limits != w.limits:
		w.limits = limits
		s.pool.Suspend(limits != "", timeout)
		if limits != "" {
			s.log.Warn("the upstream limits single connections: clients share none, as with "+
				"--upstream-mode dedicated", "limit", limits)
		} else {
			s.log.Info("the upstream no longer limits single connections: clients share them")
		}
	}
	select {
	case w.timeouts <- timeout:
	case <-ctx.Done():
	}
	return true
}

// unknownTimeout is the upstream's timeout for idle clients if it does not tell that.
const unknownTimeout = 30 * time.Second

// keepAwake keeps the upstream from taking clients for idle that wait for a lock, or hold one as
// long as they are connected, until ctx ends. timeouts are the upstream's for idle clients, as they
// become known; 0 is none.
func (s *Server) keepAwake(ctx context.Context, timeouts <-chan time.Duration) {
	loopguard.MayWait()
	var timeout time.Duration
	for {
		var again <-chan time.Time
		if timeout > 0 {
			for _, sess := range s.list() {
				if sess.client.is(locking) || sess.client.holder.ShortestLease() > 0 {
					sess.pipe.KeepAlive()
				}
			}
			again = time.After(timeout / 3)
		}
		select {
		case timeout = <-timeouts:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// limits asks for what the upstream allows a client, "" is anything, and for its timeout for idle
// ones, 0 is none.
func (s *Server) limits(
	ctx context.Context,
) (limits string, timeout time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout)
	defer cancel()
	var values [3]string
	// One at a time, as before Redis 7.0.
	for i, name := range [...]string{"client-output-buffer-limit", "maxmemory-clients", "timeout"} {
		found, err := s.prober.ConfigGet(ctx, name).Result()
		if err != nil {
			return "", 0, err
		}
		values[i] = found[name]
	}
	seconds, _ := strconv.Atoi(values[2])
	return limitsIn(values[0], values[1], values[2]), time.Duration(seconds) * time.Second, nil
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
