package passthrough

import (
	"context"
	"errors"
	"time"

	"lockproxy/internal/loopguard"
	"lockproxy/internal/upstream"
)

const (
	// maxProbe bounds a probe.
	maxProbe = time.Second
	// sameOutage is how close together the connections end that one outage ends.
	sameOutage = 100 * time.Millisecond
)

// outageCheck finds out whether Redis still answers after a connection has ended.
type outageCheck struct {
	turn chan struct{} // has room for one: who has put something there has the turn to probe
	at   time.Time     // guarded by turn; when the last probe began
	addr string        // guarded by turn; which server has answered it; "" for none
}

// closedAlone reports whether Redis at addr has closed a single connection rather than all: it
// answers, and no lane has ended at about the same time. A home in a cluster, which has no addr, is
// no single connection.
func (p *Pool) closedAlone(addr string, ended time.Time) bool {
	return addr != "" && p.outage.answers(p, addr, ended) && !p.laneEnded(ended)
}

// laneEnded waits, and reports whether a lane has ended at about the same time.
func (p *Pool) laneEnded(ended time.Time) bool {
	loopguard.MayWait()
	select {
	case <-time.After(sameOutage - time.Since(ended)):
	case <-p.ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.laneLost.Before(ended.Add(-sameOutage))
}

// answers reports whether Redis at addr answers. Connections that ended before a probe began share
// its result.
func (o *outageCheck) answers(p *Pool, addr string, ended time.Time) bool {
	loopguard.MayWait()
	o.turn <- struct{}{}
	defer func() { <-o.turn }()
	if !o.at.After(ended) {
		o.at, o.addr = time.Now(), probe(p.ctx, p.Upstream, min(maxProbe, p.DialTimeout))
	}
	return o.addr == addr
}

// probe returns the address of the server that answers, or "".
func probe(ctx context.Context, up *upstream.Upstream, timeout time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	server, err := up.StillAdmits(ctx)
	switch refused, ok := errors.AsType[*upstream.Refused](err); {
	case ok:
		return refused.From
	case err != nil:
		return ""
	}
	return server.Addr
}
