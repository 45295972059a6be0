package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/names"
	"lockproxy/internal/panics"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// Server accepts clients and proxies each. Make it with New; use Serve once.
type Server struct {
	roster
	cfg       Config
	log       hclog.Logger
	id        string // names this proxy among all, in the names of its connections
	started   time.Time
	pool      *passthrough.Pool
	locks     *lockcmd.Locks
	loops     atomic.Pointer[eventloop.Loops] // read clients, homes and lanes; nil if there are none
	ctx       context.Context                 // ends when the server is told to stop at once
	cancel    context.CancelFunc
	following sync.WaitGroup // the upstream, if it moves, and clients that have closed
	prober    *redis.Client  // by which Ready asks; connects when it is needed
	nextConn  atomic.Uint64
	counters  counters
	status    upstreamStatus
	buffers   bufferQuota // what sessions can hold of unfinished requests
	scripts   scriptLoads
	filesSaid atomic.Int64 // when ranOutOfFiles has logged last, as monotonic.Now; 0 for never
	blocked   blockedClients
}

// panicked counts and logs a panic that was contained.
func (s *Server) panicked(client string, fault *panics.Panic) {
	s.counters.panics.Add(1)
	s.log.Error("lockproxy has a fault, please report it: the client is disconnected, others are "+
		"served", "client", client, "panic", fault.What, "stack", fault.Stack)
}

// Locks are the lock commands of this proxy.
func (s *Server) Locks() *lockcmd.Locks { return s.locks }

// Identity is the proxy's own login: the URL's user, on its database.
func (s *Server) Identity() names.Identity {
	return s.cfg.Upstream.Initial.AnyProto()
}
