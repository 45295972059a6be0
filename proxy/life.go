package proxy

// A Server begins and ends here.

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"
	"runtime"
	"syscall"
	"time"

	"github.com/tidwall/redcon"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/loopguard"
	"lockproxy/internal/panics"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// New returns a Server that is not listening yet.
func New(cfg Config) *Server {
	cfg.setDefaults()
	s := &Server{cfg: cfg, log: cfg.Logger, id: newID(cfg.Host), started: time.Now()}
	s.roster.max, s.roster.sessions = cfg.MaxClients, map[*session]struct{}{}
	s.roster.room = s.cfg.clientsByFiles
	s.buffers.max = max(maxBuffers, 4*int64(cfg.ClientBuffer))
	batchScript := script.BatchSHA
	if cfg.Locks.Cluster {
		batchScript = "" // a node runs no script on the keys of several slots
	}
	s.pool = passthrough.NewPool(passthrough.Config{
		Upstream: cfg.Upstream, LanesPerKey: cfg.UpstreamConns, DialTimeout: cfg.DialTimeout,
		Spares: cfg.spares(), BatchScript: batchScript, OnDial: s.recordConnect, HomeIdle: cfg.HomeIdle,
		MaxUnread: cfg.MaxUnread,
		OnMoved: func(to upstream.Server) {
			s.log.Warn("new connections to the upstream lead to another server, or to a "+
				"restarted one: shared connections, and the proxy's own, are opened again",
				"upstream", cfg.Upstream, "address", to.Addr, "run_id", to.RunID)
		},
		OnDropped: func(client net.Addr, err error) {
			s.log.Warn("a client was disconnected: it left too many replies unread",
				"client", clientAddr(client), "error", err)
		},
		OnPanic: func(client net.Addr, fault *panics.Panic) {
			name := "several"
			if client != nil {
				name = clientAddr(client)
			}
			s.panicked(name, fault)
		},
	})
	s.prober = cfg.Upstream.Client(cfg.Upstream.Initial)
	cfg.Locks.InUse, cfg.Locks.CanFence = cfg.Upstream.InUse, fenceable
	s.locks = lockcmd.New(cfg.Locks, s.id, cfg.Upstream.Client, cfg.Logger)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.warnOfFiles()
	s.warnOfMemoryFiles()
	return s
}

// newID names a proxy among all, in lock records and channels: by its host for people, and at
// random.
func newID(host string) string {
	var id [8]byte
	rand.Read(id[:])
	name := []byte(host[:min(len(host), maxHost)])
	for i, c := range name {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' {
			name[i] = '_' // others have a meaning in records
		}
	}
	if len(name) > 0 {
		name = append(name, '.')
	}
	return string(name) + hex.EncodeToString(id[:])
}

// maxHost bounds the host in a proxy's ID, bytes: the ID is in each lock's record.
const maxHost = 24

// Serve accepts clients from ln until Shutdown or Close; then it returns nil. It takes ln over.
func (s *Server) Serve(ln net.Listener) error {
	_, sockets := ln.(syscall.Conn)
	accepts, err := s.listen(ln, func() { s.start(sockets) })
	if accepts == nil {
		ln.Close()
		return err
	}
	// redcon needs refuse and never calls it: every connection is taken over.
	refuse := func(conn redcon.Conn, cmd redcon.Command) { conn.Close() }
	addr := ln.Addr()
	server := redcon.NewServerNetwork(addr.Network(), addr.String(), refuse, s.accept, nil)
	server.AcceptError = func(err error) {
		if !s.ranOutOfFiles("accept clients", err) {
			s.log.Error("cannot accept clients", "error", err)
		}
	}
	return server.Serve(accepts)
}

// start starts what runs as long as the server: what follows the upstream, what ends stuck sessions
// and, if its clients have sockets, the event loops that read clients, homes and lanes. Without
// loops each is read by a goroutine. Close ends all.
func (s *Server) start(sockets bool) {
	if sockets {
		loops, err := eventloop.Start((runtime.GOMAXPROCS(0) + 1) / 2)
		if err != nil {
			s.log.Warn("clients are read without an event loop, which is slower", "error", err)
		}
		s.loops.Store(loops)
		s.pool.ReadIn(loops)
	}
	s.following.Go(func() { s.cfg.Upstream.Follow(s.ctx, s.log, s.locks.FailedOver) })
	s.following.Go(func() { s.lookAfter(s.ctx, endStuck()) })
	s.following.Go(func() { s.lookAfter(s.ctx, openHomes) })
}

// Shutdown stops accepting. It closes each connection between two commands, once all requests of
// the client have been answered: with the answer to the next command or, if none comes, soon. It
// waits for the end of transactions and for locks to be released, and tells waiters to ask
// elsewhere. When ctx ends it closes the rest. On return all sessions have ended; the error is
// ctx's if some were cut short.
func (s *Server) Shutdown(ctx context.Context) error {
	loopguard.MayWait()
	now := time.Now()
	idle := idleDrain(ctx.Deadline())
	ln, sessions := s.advance(serverDraining, now.Add(idle))
	for _, sess := range sessions {
		sess.drain(now.Add(idle))
	}
	if ln != nil {
		ln.finish(now.Add(idle / 2)) // a client that is accepted then has as long to ask something
	}
	drained := make(chan struct{})
	go func() { // ends when the last session does, which Close below makes sure of
		defer close(drained)
		s.goroutines.Wait()
	}()
	select {
	case <-drained:
	case <-ctx.Done():
	}
	if n := s.counters.tooLate.Load(); n > 0 {
		s.log.Info("commands that were sent as their connections ended have not been run",
			"clients", n)
	}
	cut := s.end()
	<-drained
	if cut > 0 {
		return context.Cause(ctx)
	}
	return nil
}

// Close ends everything at once, and returns when it has ended. Safe to call more than once.
func (s *Server) Close() { s.end() }

// end is Close. It returns how many sessions had not ended.
func (s *Server) end() (cut int) {
	loopguard.MayWait()
	ln, sessions := s.advance(serverStopped, time.Time{})
	if ln != nil {
		ln.Close()
	}
	s.cancel()
	for _, sess := range sessions {
		sess.kill()
	}
	s.goroutines.Wait()
	s.locks.Close()
	s.pool.Close()
	s.following.Wait()
	s.loops.Load().Stop()
	s.prober.Close()
	return len(sessions)
}
