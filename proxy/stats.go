package proxy

// Others read the proxy's counts here.

import (
	"sync/atomic"
	"time"

	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// Stats is the proxy at one moment.
type Stats struct {
	Version  string
	Started  time.Time
	Draining bool // it is about to shut down: no new clients should come
	Clients  int
	Accepted uint64 // connections
	Rejected uint64 // connections, since there were --max-clients already
	Panics   uint64 // that have disconnected a client, and ended nothing else

	Traffic
	UpstreamStats

	Locks lockcmd.Stats
}

// EmbeddedUpstream stands for the address of an in-memory store in this process.
const EmbeddedUpstream = "embedded"

// UpstreamStats is the upstream at that moment.
type UpstreamStats struct {
	Upstream        string // its address, or EmbeddedUpstream
	UpstreamUp      bool   // the last connect has succeeded, or there was none yet
	ClusterMasters  int    // that serve slots, as far as is known; 0 if it is no cluster
	ClusterWhole    bool   // each slot of it is served
	Connects        uint64 // to the upstream, for clients
	ConnectFailures uint64
	Connections     passthrough.Stats
}

// counters are what a Server counts.
type counters struct {
	accepted atomic.Uint64
	rejected atomic.Uint64
	connects atomic.Uint64
	failures atomic.Uint64
	down     atomic.Bool // the last connect has failed
	panics   atomic.Uint64
	tooLate  atomic.Uint64 // clients that sent commands as their connections ended
	ended    Traffic       // guarded by roster.mu; of the sessions that have ended
}

// connected counts a connect to the upstream.
func (c *counters) connected(err error) {
	if err == nil {
		c.connects.Add(1)
	} else {
		c.failures.Add(1)
	}
	c.down.Store(err != nil)
}

// ID names this proxy among all, as lock records do.
func (s *Server) ID() string { return s.id }

// Stats returns the present figures. It costs a little for each client.
func (s *Server) Stats() Stats {
	up := s.cfg.Upstream
	st := Stats{
		Version: s.cfg.Version, Started: s.started,
		Accepted: s.counters.accepted.Load(), Rejected: s.counters.rejected.Load(),
		Panics: s.counters.panics.Load(),
		UpstreamStats: UpstreamStats{
			Upstream: up.String(), UpstreamUp: !s.counters.down.Load(),
			Connects: s.counters.connects.Load(), ConnectFailures: s.counters.failures.Load(),
			Connections: s.pool.Stats(),
		},
		Locks: s.locks.Stats(),
	}
	if s.cfg.Embedded {
		st.Upstream = EmbeddedUpstream
	}
	st.ClusterMasters, st.ClusterWhole = up.ClusterMasters()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Draining, st.Clients = s.state >= serverUnready, len(s.sessions)
	st.Traffic = s.counters.ended
	for sess := range s.sessions {
		sess.client.addTo(&st.Traffic)
	}
	return st
}
