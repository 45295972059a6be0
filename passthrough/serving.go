package passthrough

// Whether a home that has ended was closed alone.

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"lockproxy/internal/upstream"
)

// maxCheck bounds how long whoServes asks.
const maxCheck = time.Second

// serving is what stillServes found last.
type serving struct {
	mu   sync.Mutex
	at   time.Time // guarded by mu; when it began to ask
	addr string    // guarded by mu; who answered; "" for nobody
}

// aroundLoss is how close together connections end that are lost for one reason.
const aroundLoss = 100 * time.Millisecond

// closedAlone reports whether the upstream at addr has closed one connection rather than all: it
// answers, and no lane has ended at about the same time.
func (ls *Lanes) closedAlone(addr net.Addr, ended time.Time) bool {
	if !ls.stillServes(addr, ended) {
		return false
	}
	select {
	case <-time.After(aroundLoss - time.Since(ended)):
	case <-ls.ctx.Done():
	}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.laneLost.Before(ended.Add(-aroundLoss))
}

// stillServes reports whether the upstream at addr answers. Those whose connections ended before
// somebody began to ask share the answer.
func (ls *Lanes) stillServes(addr net.Addr, ended time.Time) bool {
	s := &ls.serving
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.After(ended) {
		s.at, s.addr = time.Now(), ls.whoServes()
	}
	return s.addr != "" && s.addr == addr.String()
}

// whoServes is the address of the server that answers, or "".
func (ls *Lanes) whoServes() string {
	if ls.upstream.IsCluster() {
		return "" // the end of a node's connection is no end of a home
	}
	ctx, cancel := context.WithTimeout(ls.ctx, min(maxCheck, ls.dialTimeout))
	defer cancel()
	conn, err := ls.upstream.DialAdmitted(ctx, ls.upstream.Initial)
	var refused *upstream.Refused
	switch {
	case err == nil:
		defer conn.Close()
		return conn.RemoteAddr().String()
	case errors.As(err, &refused):
		return refused.Addr
	}
	return ""
}
