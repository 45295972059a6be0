package admin

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"lockproxy/proxy"
)

// readiness is the last answer to whether clients can be served. However often it is asked, it asks
// the upstream only once per readyFor, one question at a time.
type readiness struct {
	ask func(ctx context.Context) error

	failed atomic.Bool // the last answer; it never waits for the next

	mu  sync.Mutex
	at  time.Time // guarded by mu
	err error     // guarded by mu
}

const (
	// readyFor is how long an answer holds.
	readyFor = 250 * time.Millisecond
	// readyTimeout is how long the upstream may take.
	readyTimeout = time.Second
)

// probe asks each second, until ctx ends, so that failed is never old.
func (r *readiness) probe(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		r.now()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *readiness) now() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) > readyFor {
		ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
		defer cancel()
		r.err, r.at = r.ask(ctx), time.Now()
		r.failed.Store(r.err != nil)
	}
	return r.err
}

// stats are the proxy's, in which the upstream counts as down if the last probe has failed: clients
// that are idle do not notice.
func (s *Server) stats() proxy.Stats {
	st := s.cfg.Proxy.Stats()
	st.UpstreamUp = st.UpstreamUp && (!s.ready.failed.Load() || st.Draining)
	return st
}

// serveHealth says that the process lives, and nothing more.
func (s *Server) serveHealth(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "ok")
}

// serveReady says whether clients can be served, and if not, why.
func (s *Server) serveReady(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if s.cfg.Proxy.Stats().Draining {
		s.ready.forget()
	}
	if err := s.ready.now(); err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintf(w, "not ready: %v\n", err)
		return
	}
	if s.cfg.Proxy.Stats().Upstream == proxy.EmbeddedUpstream {
		fmt.Fprintln(w, "ready: embedded in-memory store, for trying out")
		return
	}
	fmt.Fprintln(w, "ready")
}

// forget makes the next answer a fresh one.
func (r *readiness) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at = time.Time{}
}
