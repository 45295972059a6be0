// Package proxy is the server that clients connect to: it looks like the Redis behind it and knows a few commands more.
//
// The path of a request:
//
//	listener -> redcon (accept) -> session: framer -> dispatch by the table of commands -> passthrough.Pipe (relay)
//	                                                                                    -> lockcmd (lock command)
//	reply bytes, in the order of the requests <- passthrough.Pipe
//
// Each connection is taken from redcon before its parser reads a byte (see listener) and becomes a session with a goroutine
// of its own, a bounded framer, and a Pipe. A session owns its connections and its Pipe's goroutine; the Server owns its sessions.
// A session rests when it has nothing to do: an event loop then reads its client and relays in place whatever needs no waiting, in the
// order in which clients' requests arrive (see park). For anything else, such as a lock command, it wakes the session's goroutine.
//
// The proxy adds no privilege: lock commands run as scripts in the client's turn, on a connection that is logged in as it is, on its database.
// What can't wait for that connection (renewing and releasing session locks) runs beside it with the same login.
package proxy

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"github.com/tidwall/redcon"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// Config is what a Server is made of. Upstream is required.
type Config struct {
	Upstream    *upstream.Upstream
	Locks       lockcmd.Config
	Limits      resp.Limits   // zero fields are Redis's own limits
	MaxClients  int           // 0 is 10,000, as in Redis
	DialTimeout time.Duration // of connecting and logging in to the upstream; 0 is 5 s
	Logger      hclog.Logger  // nil logs nothing
	Observer    Observer      // is told how long things took; nil is nobody
	Version     string        // for INFO lockproxy

	// UpstreamConns is how many connections the sessions of one user, database and protocol share at most; 0 is 1.
	UpstreamConns int
	// HomeIdle is after how long a client's own connection to the upstream is closed that it has not
	// needed, if that is as a new one would be. It is dialled again on demand. 0 is never.
	HomeIdle time.Duration
	// Dedicated has clients share nothing.
	Dedicated bool
	// ClusterAnnounce is host:port where clients that know Redis Cluster are told to go, if the upstream is one; "" is where each has
	// come to.
	ClusterAnnounce string
	// ClientBuffer bounds a request that must be seen whole, bytes: a lock command, AUTH, HELLO, CLIENT, COMMAND. Others are
	// streamed. 0 is 1 MiB; less than 64 KiB, the size of a read, makes no difference.
	ClientBuffer int
	// MaxUnread bounds the temporary files in which replies wait that clients don't read, all together, bytes; 0 is 1 GiB. A client for
	// whose replies there is no room is closed.
	MaxUnread int64
	// TLS is what clients are served with; nil is plain text.
	TLS *tls.Config
	// ProxyProtocolFrom are the networks whose connections begin with a PROXY header, version 1 or 2. One that doesn't is closed.
	ProxyProtocolFrom []netip.Prefix
	// HandshakeTimeout is for the PROXY header and the TLS handshake together; 0 is 10 s.
	HandshakeTimeout time.Duration
}

// Server accepts clients and proxies each. Make it with New; use Serve once.
type Server struct {
	cfg       Config
	log       hclog.Logger
	id        string // names this proxy among all, in the names of its connections
	lanes     *passthrough.Pool
	locks     *lockcmd.Locks
	loops     *eventloop.Loops // read clients and lanes; nil if there are none
	ctx       context.Context  // ends when the server is told to stop at once
	cancel    context.CancelFunc
	started   time.Time
	prober    *redis.Client  // by which Ready asks; connects when it is needed
	serving   sync.WaitGroup // sessions; nothing is added once nothing is accepted
	following sync.WaitGroup // the upstream, if it moves
	stopLoops sync.Once
	nextConn  atomic.Uint64
	down      atomic.Bool // the last connect to the upstream failed: what has been logged
	counters  counters
	buffers   bufferQuota // what sessions may hold of unfinished requests

	handshakeLogged atomic.Int64 // the second in which logGreeting last warned

	mu       sync.Mutex
	ln       *listener             // guarded by mu
	sessions map[*session]struct{} // guarded by mu
	unready  bool                  // guarded by mu; it will be shut down soon
	draining bool                  // guarded by mu; sessions end when they may
	idleEnd  time.Time             // guarded by mu; when sessions may end that ask nothing, once draining is set
	stopping bool                  // guarded by mu; no session is begun
}

// New returns a Server that is not listening yet.
func New(cfg Config) *Server {
	if cfg.MaxClients == 0 {
		cfg.MaxClients = 10000
	}
	if cfg.UpstreamConns == 0 {
		cfg.UpstreamConns = 1
	}
	if cfg.Dedicated {
		cfg.UpstreamConns = 0
	}
	if cfg.DialTimeout == 0 {
		cfg.DialTimeout = 5 * time.Second
	}
	if cfg.ClientBuffer == 0 {
		cfg.ClientBuffer = 1 << 20
	}
	if cfg.MaxUnread == 0 {
		cfg.MaxUnread = 1 << 30
	}
	if cfg.HandshakeTimeout == 0 {
		cfg.HandshakeTimeout = 10 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	cfg.Locks.Moves = cfg.Upstream.Moves()
	cfg.Locks.Cluster = cfg.Locks.Cluster || cfg.Upstream.IsCluster()
	cfg.Locks.CanFence = func(command [][]byte) bool { return lookup(command[0]).fenceable(command) }
	var id [8]byte
	rand.Read(id[:])
	s := &Server{
		cfg: cfg, log: cfg.Logger, id: hex.EncodeToString(id[:]),
		sessions: map[*session]struct{}{}, started: time.Now(),
	}
	s.buffers.max = max(maxBuffers, 4*int64(cfg.ClientBuffer))
	s.lanes = passthrough.NewPool(cfg.Upstream, cfg.UpstreamConns, cfg.DialTimeout)
	s.lanes.CloseIdleHomes(cfg.HomeIdle)
	s.lanes.OnHomeDial(s.recordUpstreamStatus)
	s.lanes.LimitUnread(cfg.MaxUnread, func(client net.Addr, err error) {
		s.log.Warn("client closed: it doesn't read what it asked for", "client", clientAddr(client), "error", err)
	})
	if cfg.Locks.Observer == nil && cfg.Observer != nil {
		cfg.Locks.Observer = cfg.Observer
	}
	s.prober = cfg.Upstream.Client(cfg.Upstream.Initial)
	s.locks = lockcmd.New(cfg.Locks, s.id, func(as lockcmd.Identity) *redis.Client {
		return cfg.Upstream.Client(upstream.Identity{User: as.User, Password: as.Password, LoggedIn: as.LoggedIn, DB: as.DB})
	}, cfg.Logger)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve accepts clients from ln until Shutdown or Close; then it returns nil. It takes ln over.
func (s *Server) Serve(ln net.Listener) error {
	wrapped := newListener(ln)
	s.mu.Lock()
	if s.stopping || s.ln != nil {
		s.mu.Unlock()
		ln.Close()
		return fmt.Errorf("serve %s: the server has been used already", ln.Addr())
	}
	s.ln = wrapped
	s.startLoops()
	s.following.Go(func() { s.cfg.Upstream.Follow(s.ctx, s.log, s.locks.FailedOver) }) // ends with s.ctx; Close waits for it
	s.mu.Unlock()
	refuse := func(conn redcon.Conn, cmd redcon.Command) { conn.Close() } // never called: every connection is taken over
	server := redcon.NewServerNetwork(ln.Addr().Network(), ln.Addr().String(), refuse, s.accept, nil)
	server.AcceptError = func(err error) { s.log.Error("cannot accept clients", "error", err) }
	return server.Serve(wrapped)
}

// startLoops begins the event loops that read clients, homes and lanes. Without them each goroutine reads for itself.
func (s *Server) startLoops() {
	loops, err := eventloop.Start((runtime.GOMAXPROCS(0) + 1) / 2)
	if err != nil {
		s.log.Warn("clients are read without an event loop, which is slower", "error", err)
	}
	s.loops = loops
	s.lanes.ReadIn(loops)
}

// SetMaxClients changes how many clients are served at one time, from the next one on; those that are there stay.
func (s *Server) SetMaxClients(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.MaxClients = n
}

// Shutdown stops accepting, and closes each connection between two of its commands when all that its client has asked is answered:
// with the answer to the next command, or if none comes, soon. It waits for the end of transactions and for locks to be released,
// and tells those who wait for one to ask elsewhere. When ctx ends it closes the rest. On return all sessions have ended; the
// error is ctx's if some were cut short.
func (s *Server) Shutdown(ctx context.Context) error {
	now := time.Now()
	idle := idleDrain(ctx.Deadline())
	idleEnd := now.Add(idle)
	s.mu.Lock()
	ln := s.ln
	s.unready, s.draining, s.idleEnd = true, true, idleEnd
	sessions := s.sessionsLocked()
	s.mu.Unlock()
	for _, sess := range sessions {
		sess.drain(idleEnd)
	}
	if ln != nil {
		ln.finish(now.Add(idle / 2)) // who is accepted then has as long to ask something
	}
	drained := make(chan struct{})
	go func() { // ends when the last session does, which Close below makes sure of
		defer close(drained)
		s.serving.Wait()
	}()
	var err error
	select {
	case <-drained:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if n := s.counters.tooLate.Load(); n > 0 {
		s.log.Info("commands that were sent as their connections ended have not been run", "clients", n)
	}
	s.Close()
	<-drained
	return err
}

// Close ends everything at once, and returns when it has ended. Safe to call more than once.
func (s *Server) Close() {
	s.mu.Lock()
	s.unready, s.stopping = true, true
	if s.ln != nil {
		s.ln.Close()
	}
	sessions := s.sessionsLocked()
	s.mu.Unlock()
	s.cancel()
	for _, sess := range sessions {
		sess.kill()
	}
	s.serving.Wait()
	s.locks.Close()
	s.lanes.Close()
	s.following.Wait()
	s.stopLoops.Do(s.loops.Stop)
	s.prober.Close()
}

// sessionsLocked are the sessions there are. mu is held.
func (s *Server) sessionsLocked() []*session {
	list := make([]*session, 0, len(s.sessions))
	for sess := range s.sessions {
		list = append(list, sess)
	}
	return list
}

// recordUpstreamStatus records how connecting went, and logs it when that has changed. A nil error is success.
func (s *Server) recordUpstreamStatus(err error) {
	if err == nil {
		s.counters.connects.Add(1)
	} else {
		s.counters.failures.Add(1)
	}
	if err != nil && s.down.CompareAndSwap(false, true) {
		s.log.Error("upstream does not serve: clients are answered UPSTREAM until it does", "upstream", s.cfg.Upstream, "error", err)
	}
	if err == nil && s.down.CompareAndSwap(true, false) {
		s.log.Info("upstream serves again", "upstream", s.cfg.Upstream)
	}
}

// Locks are the lock commands of this proxy.
func (s *Server) Locks() *lockcmd.Locks { return s.locks }

// Identity is what the proxy logs in as by itself: the URL's user, on its database.
func (s *Server) Identity() lockcmd.Identity {
	id := s.cfg.Upstream.Initial
	return lockcmd.Identity{User: id.User, Password: id.Password, LoggedIn: id.LoggedIn, DB: id.DB}
}
