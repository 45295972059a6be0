package proxy

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/upstream"
)

// errDraining is why a proxy that is stopping isn't ready.
var errDraining = errors.New("shutting down: no new clients are taken")

// Ready reports whether clients can be served: nil, or why not. It asks the upstream as the URL's
// user. An upstream that wants a login, or a user who may not PING, is for clients to deal with.
func (s *Server) Ready(ctx context.Context) error {
	if s.isUnready() {
		return errDraining
	}
	switch err := s.ping(ctx); {
	case upstream.OutOfFiles(err):
		return fmt.Errorf("the proxy has too many open files: %s (%w)", raiseFiles, err)
	case err != nil:
		return fmt.Errorf("the upstream %s does not serve: %w", s.cfg.Upstream, err)
	}
	return nil
}

// ping asks the upstream as Ready does.
func (s *Server) ping(ctx context.Context) error {
	err := s.prober.Ping(ctx).Err()
	if redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	return err
}
