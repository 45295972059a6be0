package proxy

// What the proxy counts, as everybody may read it.

import (
	"sync/atomic"
	"time"

	"lockproxy/lockcmd"
)

// Kind is what the proxy does with a request. There are few, so that each has a counter.
type Kind uint8

const (
	Relayed     Kind = iota // passed on unchanged
	Introspects             // answered with the upstream's reply, completed: COMMAND
	firstLock               // the lock commands, in the order of lockcmd.Specs
)

// Kinds is how many there are.
var Kinds = int(firstLock) + len(lockcmd.Specs)

// maxKinds bounds Kinds, for arrays.
const maxKinds = 16

// String is the kind as a label.
func (k Kind) String() string {
	switch {
	case k == Relayed:
		return "relay"
	case k == Introspects:
		return "introspect"
	}
	return lockcmd.Specs[k-firstLock].Name
}

// kindOf is the kind of a lock command.
func kindOf(spec *lockcmd.Spec) Kind {
	for i := range lockcmd.Specs {
		if spec == &lockcmd.Specs[i] {
			return firstLock + Kind(i)
		}
	}
	return Relayed
}

// Observer is told how long things took. It is called from many goroutines and must not block.
type Observer interface {
	lockcmd.Observer
	// CommandTook tells the time from a request's arrival to its reply's departure. Of relayed
	// requests it tells a sample (see sampleEvery), of LOCKs only those without WAIT.
	CommandTook(kind Kind, d time.Duration)
}

// Stats is the proxy at one moment.
type Stats struct {
	Version  string
	Started  time.Time
	Draining bool // it is about to shut down: no new clients should come
	Clients  int
	Accepted uint64 // connections
	Rejected uint64 // connections, since there were --max-clients already
	Commands [maxKinds]uint64
	BytesIn  uint64 // from clients, without TLS and PROXY headers
	BytesOut uint64 // to clients, likewise

	Upstream        string // its address
	UpstreamUp      bool   // the last connect has succeeded, or there was none yet
	Cluster         bool   // it is a Redis Cluster
	ClusterMasters  int    // nodes of it that serve slots, as far as is known
	ClusterWhole    bool   // each slot of it is served
	Connects        uint64 // to the upstream, for clients
	ConnectFailures uint64
	Connections     UpstreamStats

	Locks lockcmd.Stats
}

// UpstreamStats is how connections to the upstream are used.
type UpstreamStats struct {
	Lanes  int // connections that clients share
	Shared int // clients that use one of these
	Homes  int // connections of one client each
}

// counters are what a Server counts.
type counters struct {
	accepted atomic.Uint64
	rejected atomic.Uint64
	connects atomic.Uint64
	failures atomic.Uint64
	tooLate  atomic.Uint64 // clients that sent commands as their connections ended
	ended    traffic       // of the sessions that have ended
}

// Stats returns the present figures. It costs a little for each client.
func (s *Server) Stats() Stats {
	st := Stats{
		Version: s.cfg.Version, Started: s.started,
		Accepted: s.counters.accepted.Load(), Rejected: s.counters.rejected.Load(),
		Upstream: s.cfg.Upstream.String(), UpstreamUp: !s.down.Load(),
		Connects: s.counters.connects.Load(), ConnectFailures: s.counters.failures.Load(),
		Connections: UpstreamStats(s.lanes.Stats()),
		Locks:       s.locks.Stats(),
		Cluster:     s.cfg.Upstream.IsCluster(),
	}
	st.ClusterMasters, st.ClusterWhole = s.cfg.Upstream.ClusterMasters()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Draining, st.Clients = s.unready, len(s.sessions)
	s.counters.ended.addTo(&st)
	for sess := range s.sessions {
		sess.client.addTo(&st)
	}
	return st
}
