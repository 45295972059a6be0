package admin

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"lockproxy/proxy"
)

// readiness is the last answer to whether clients can be served. However often it is asked, the
// upstream is asked once in a while, by one at a time.
type readiness struct {
	ask func(ctx context.Context) error

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

func (r *readiness) now() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) > readyFor {
		ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
		defer cancel()
		r.err, r.at = r.ask(ctx), time.Now()
	}
	return r.err
}

// serveHealth says that the process lives; it asks nothing else.
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
