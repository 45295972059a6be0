package proxy

import (
	"context"

	"lockproxy/internal/loopguard"
)

// Alive returns nil if the proxy gets on with its work, whatever the upstream does: its event loops go
// round, and its clients and locks can be counted, which takes the locks of all tables. It returns
// ctx's error if that takes too long. After Close there are no loops, and it returns nil.
func (s *Server) Alive(ctx context.Context) error {
	loopguard.MayWait()
	counted := make(chan struct{})
	go func() { // ends when it has counted; not waited for if that hangs
		defer close(counted)
		s.Stats()
	}()
	select {
	case <-counted:
	case <-ctx.Done():
		return ctx.Err()
	}
	return s.loops.Load().Answer(ctx)
}
