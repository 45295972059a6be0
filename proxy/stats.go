package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"lockproxy/internal/eventloop"
	"lockproxy/lockcmd"
)

// Kind is what the proxy does with a request. There are few, so that they can be counted apart.
type Kind uint8

const (
	Relayed     Kind = iota // passed on unchanged
	Introspects             // answered with what the upstream says, completed: COMMAND, INFO lockproxy
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

// Observer is told how long things took. It is called from many goroutines and must not block.
type Observer interface {
	lockcmd.Observer
	// CommandTook tells how long it took from a request's arrival to its reply's departure. Of relayed requests only a sample is
	// told, see sampleEvery; of LOCKs only those without WAIT.
	CommandTook(kind Kind, d time.Duration)
}

// Stats is the proxy at one moment.
type Stats struct {
	Version  string
	Started  time.Time
	Draining bool // it finishes what it was sent and takes nothing new
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
	Homes  int // connections that are one client's own
}

// counters are what a Server counts.
type counters struct {
	started  time.Time
	accepted atomic.Uint64
	rejected atomic.Uint64
	connects atomic.Uint64
	failures atomic.Uint64
	tooLate  atomic.Uint64 // clients whose commands crossed with the end of their connections
	ended    traffic       // of the sessions that are no more
}

// traffic is what a session has carried. The session and its Pipe add to it; anybody may read it.
type traffic struct {
	commands [maxKinds]atomic.Uint64
	in, out  atomic.Uint64
}

func (t *traffic) addTo(st *Stats) {
	for i := range t.commands {
		st.Commands[i] += t.commands[i].Load()
	}
	st.BytesIn += t.in.Load()
	st.BytesOut += t.out.Load()
}

// startObserving is called once, by New, before anything else is made.
func (s *Server) startObserving(locks *lockcmd.Config) {
	s.counters.started = time.Now()
	if locks.Observer == nil && s.cfg.Observer != nil {
		locks.Observer = s.cfg.Observer
	}
}

// Stats tells what the proxy does and has done. It costs a little for each client.
func (s *Server) Stats() Stats {
	st := Stats{
		Version: s.cfg.Version, Started: s.counters.started,
		Accepted: s.counters.accepted.Load(), Rejected: s.counters.rejected.Load(),
		Upstream: s.cfg.Upstream.String(), UpstreamUp: !s.down.Load(),
		Connects: s.counters.connects.Load(), ConnectFailures: s.counters.failures.Load(),
		Connections: UpstreamStats(s.lanes.Stats()),
		Locks:       s.locks.Stats(),
	}
	st.Cluster = s.cfg.Upstream.IsCluster()
	st.ClusterMasters, st.ClusterWhole = s.cfg.Upstream.ClusterMasters()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.Draining, st.Clients = s.unready, len(s.sessions)
	s.counters.ended.addTo(&st)
	for sess := range s.sessions {
		sess.meter.addTo(&st)
	}
	return st
}

// Locks is the lock commands of this proxy.
func (s *Server) Locks() *lockcmd.Locks { return s.locks }

// retireLocked takes a session that has ended out of the sessions and keeps what it has counted. mu is held.
func (s *Server) retireLocked(sess *session) {
	delete(s.sessions, sess)
	sess.meter.publish()
	t := &sess.meter.traffic
	for i := range t.commands {
		s.counters.ended.commands[i].Add(t.commands[i].Load())
	}
	s.counters.ended.in.Add(t.in.Load())
	s.counters.ended.out.Add(t.out.Load())
}

func (s *Server) observeConnect(err error) {
	if err != nil {
		s.counters.failures.Add(1)
		return
	}
	s.counters.connects.Add(1)
}

// errDraining is why a proxy that is stopping isn't ready.
var errDraining = errors.New("shutting down: no new clients are taken")

// Ready reports whether clients can be served: nil, or why not. It asks the upstream, as the URL's user. That the upstream wants
// a login, or that the user may not PING, is for clients to deal with.
func (s *Server) Ready(ctx context.Context) error {
	s.mu.Lock()
	leaving := s.unready
	s.mu.Unlock()
	if leaving {
		return errDraining
	}
	err := s.probe().Ping(ctx).Err()
	if redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "NOPERM") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the upstream %s does not serve: %w", s.cfg.Upstream, err)
	}
	return nil
}

// probe is the connection by which Ready asks. Close closes it.
func (s *Server) probe() *redis.Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prober == nil {
		s.prober = s.cfg.Upstream.Client(s.cfg.Upstream.Initial)
	}
	return s.prober
}

func (s *Server) closeProbe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.prober != nil {
		s.prober.Close()
		s.prober = nil
	}
}

// sampleEvery is which of a session's reads are timed: most are not, since the clock costs too.
const sampleEvery = 64

// meter counts for one session, and is its client connection as the Pipe sees it. What the session's goroutine counts command by
// command is plain and becomes visible once for each batch of requests.
type meter struct {
	net.Conn
	traffic
	observer Observer
	origin   time.Time

	unpublished [maxKinds]uint32 // only the session's goroutine
	reads       uint64           // only the session's goroutine

	reg        *eventloop.Registration // the session's
	lingering  atomic.Bool             // the session reads until the client closes: Close ends only what is sent to it
	closeWrite func() error            // what Close does then
	cork       func(hold bool)         // see session.cork
	asked      atomic.Int64            // when the batch came whose reply is timed, ns since origin; 0 is none
}

func (s *Server) newMeter(nc net.Conn) *meter {
	return &meter{Conn: nc, observer: s.cfg.Observer, origin: s.counters.started}
}

// Write gives the client replies.
func (m *meter) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	m.Sent(n)
	return n, err
}

// Cork has what is written next leave in one packet with the end of the connection, if that comes at once and doesn't undo it.
func (m *meter) Cork() {
	if m.lingering.Load() {
		m.cork(true)
	}
}

// Close closes the connection, or when the session parts from its client only what is sent to it.
func (m *meter) Close() error {
	if m.lingering.Load() {
		return m.closeWrite()
	}
	defer m.reg.Wake() // who reads is to find out
	return m.Conn.Close()
}

// Sent takes note that the client has been given n bytes of replies.
func (m *meter) Sent(n int) {
	m.out.Add(uint64(n))
	if asked := m.asked.Load(); asked != 0 {
		m.asked.Store(0)
		m.observer.CommandTook(Relayed, time.Since(m.origin)-time.Duration(asked))
	}
}

// addRead counts what was read from the client.
func (m *meter) addRead(n int) {
	m.in.Add(uint64(n))
	if m.reads++; m.reads%sampleEvery == 0 && m.observer != nil {
		m.asked.Store(int64(time.Since(m.origin)))
	}
}

// count counts a request.
func (m *meter) count(kind Kind) {
	m.unpublished[kind]++
	if kind != Relayed {
		m.asked.Store(0) // the sample is of relayed requests
	}
}

// publish makes the batch's counts visible.
func (m *meter) publish() {
	for kind, n := range m.unpublished[:Kinds] {
		if n != 0 {
			m.commands[kind].Add(uint64(n))
			m.unpublished[kind] = 0
		}
	}
}

// timed runs a lock command and tells how long it took.
func (s *session) timed(spec *lockcmd.Spec, args [][]byte) lockcmd.Reply {
	s.meter.publish()     // it may take long
	defer s.guard.Start() // it may have taken a session lock
	began, waits := time.Now(), spec.Waits(args)
	reply := s.server.locks.Run(s.command(), spec, s, args)
	if !waits {
		s.observeLock(spec, began)
	}
	return reply
}

// observeLock tells the Observer how long a lock command took that has ended.
func (s *session) observeLock(spec *lockcmd.Spec, began time.Time) {
	if observer := s.server.cfg.Observer; observer != nil {
		observer.CommandTook(kindOf(spec), time.Since(began))
	}
}

func kindOf(spec *lockcmd.Spec) Kind {
	for i := range lockcmd.Specs {
		if spec == &lockcmd.Specs[i] {
			return firstLock + Kind(i)
		}
	}
	return Relayed
}

// Identity is whom the proxy is at the upstream by itself: the URL's user, on its database.
func (s *Server) Identity() lockcmd.Identity {
	id := s.cfg.Upstream.Initial
	return lockcmd.Identity{User: id.User, Password: id.Password, LoggedIn: id.LoggedIn, DB: id.DB}
}
