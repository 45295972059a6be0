package virtualtest

import (
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"lockproxy/internal/proxytest"
	"lockproxy/internal/resp"
	"lockproxy/internal/virtualnet"
)

// epoch is how long after the beginning of a bubble's time, 2000-01-01, a test begins: timestamps in
// milliseconds have had 13 digits only since 2001.
const epoch = 26 * 365 * 24 * time.Hour

// Run runs a test in virtual time, which begins late in 2025.
func Run(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	// go-redis keeps timers in a sync.Pool, and those of one bubble can't be used in another.
	runtime.GC()
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(epoch)
		test(t)
	})
}

// Store is a miniredis whose clock is the bubble's.
type Store struct {
	Redis *miniredis.Miniredis

	t      testing.TB
	addr   *net.TCPAddr
	ln     *virtualnet.Listener
	serve  sync.WaitGroup
	paused chan struct{} // closed by Resume; nil while it is not paused
}

// StartStore starts a Store that ends with the test.
func StartStore(t testing.TB) *Store {
	t.Helper()
	s := &Store{Redis: miniredis.NewMiniRedis(), t: t, ln: virtualnet.Listen()}
	s.addr = s.ln.Addr().(*net.TCPAddr)
	s.start()
	t.Cleanup(s.Kill)
	return s
}

func (s *Store) start() {
	s.t.Helper()
	s.Redis.ClockTTL(true)
	first, err := s.Redis.Dial() // makes it serve
	if err != nil {
		s.t.Fatal(err)
	}
	first.Close()
	server, ln := s.Redis.Server(), s.ln
	s.serve.Go(func() { // ends with the listener; Kill waits for it
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			server.ServeConn(nc)
		}
	})
}

// Kill ends the server and its connections. Its keys stay. It can be called again.
func (s *Store) Kill() {
	if s.paused != nil {
		s.Resume()
	}
	s.ln.Close()
	s.serve.Wait()
	s.Redis.Close()
}

// Restart lets it serve again, with its keys, at the same address.
func (s *Store) Restart() {
	s.t.Helper()
	s.Kill()
	s.ln = virtualnet.ListenAt(s.addr)
	s.start()
}

// Pause lets commands wait until Resume.
func (s *Store) Pause() {
	paused := make(chan struct{})
	s.paused = paused
	s.Redis.Server().SetPreHook(func(*server.Peer, string, ...string) bool {
		<-paused
		return false
	})
}

// Resume lets a store go on that is paused.
func (s *Store) Resume() {
	s.Redis.Server().SetPreHook(nil)
	close(s.paused)
	s.paused = nil
}

// Addr is host:port.
func (s *Store) Addr() string { return s.addr.String() }

// URL is redis://host:port.
func (s *Store) URL() string { return "redis://" + s.Addr() }

// Ask sends one command on a connection of its own. It returns the text of the reply, as
// testredis.Server's does.
func (s *Store) Ask(command ...string) string {
	s.t.Helper()
	c := proxytest.Dial(s.t, s.Addr())
	defer c.Close()
	raw := c.DoWords(command...)
	if v, err := resp.ParseValue([]byte(raw)); err == nil && v.Type == '$' {
		return string(v.Text)
	}
	return strings.TrimSuffix(raw, "\r\n")
}

// StartBoth starts a Store and a proxy in front of it.
func StartBoth(t testing.TB) (*Store, *proxytest.Proxy) {
	t.Helper()
	store := StartStore(t)
	return store, proxytest.Start(t, store.URL(), nil)
}
