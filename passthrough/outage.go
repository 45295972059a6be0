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
type outageCheck struct {
	mu   sync.Mutex
	at   time.Time // guarded by mu; when it began to ask
	addr string    // guarded by mu; who answered; "" for nobody
}

// aroundLoss is how close together connections end that are lost for one reason.
const sameOutage = 100 * time.Millisecond

// closedAlone reports whether the upstream at addr has closed one connection rather than all: it
// answers, and no lane has ended at about the same time.
func (p *Pool) closedAlone(addr net.Addr, ended time.Time) bool {
	if !p.answers(addr, ended) {
		return false
	}
	select {
	case <-time.After(sameOutage - time.Since(ended)):
	case <-p.ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.laneLost.Before(ended.Add(-sameOutage))
}

// stillServes reports whether the upstream at addr answers. Those whose connections ended before
// somebody began to ask share the answer.
func (p *Pool) answers(addr net.Addr, ended time.Time) bool {
	s := &p.outage
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.at.After(ended) {
		s.at, s.addr = time.Now(), p.probe()
	}
	return s.addr != "" && s.addr == addr.String()
}

// whoServes is the address of the server that answers, or "".
func (p *Pool) probe() string {
	if p.upstream.IsCluster() {
		return "" // the end of a node's connection is no end of a home
	}
	ctx, cancel := context.WithTimeout(p.ctx, min(maxCheck, p.dialTimeout))
	defer cancel()
	conn, err := p.upstream.DialAdmitted(ctx, p.upstream.Initial)
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
