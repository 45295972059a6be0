package virtualtest

import (
	"maps"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"lockproxy/internal/test/proxytest"
	"lockproxy/internal/test/virtualnet"
	"lockproxy/internal/test/wire"
)

// began is when the time of each test begins: a bubble's own, the year 2000, is before all timestamps
// that locks have.
var began = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Run runs a test in virtual time.
func Run(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	// go-redis keeps timers in a sync.Pool, and those of one bubble can't be used in another.
	runtime.GC()
	runtime.GC()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(began))
		// Behind all other cleanups: a goroutine of go-redis that could not connect looks each
		// second whether its client is closed.
		t.Cleanup(func() { time.Sleep(2 * time.Second) })
		test(t)
	})
}

// Store is a miniredis whose clock is the bubble's.
type Store struct {
	Redis *miniredis.Miniredis

	t     testing.TB
	addr  *net.TCPAddr
	ln    *virtualnet.Listener
	serve sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	paused  bool              // guarded by mu
	calls   map[string]int    // guarded by mu; by name
	answers map[string]Answer // guarded by mu; by name
	scripts map[string]string // guarded by mu; see unparsed
}

// StartStore starts a Store that ends with the test.
func StartStore(t testing.TB) *Store {
	t.Helper()
	s := &Store{Redis: miniredis.NewMiniRedis(), t: t, ln: virtualnet.Listen(),
		calls: map[string]int{}, answers: map[string]Answer{}, scripts: map[string]string{}}
	s.changed = sync.NewCond(&s.mu)
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
	serving, ln := s.Redis.Server(), s.ln
	serving.SetPreHook(func(client *server.Peer, name string, args ...string) (done bool) {
		return client.ClientName != loaderName &&
			(s.onCommand(client, name, args) || s.unparsed(serving, client, name, args))
	})
	s.serve.Go(func() { // ends with the listener; Kill waits for it
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			serving.ServeConn(pausable{nc, s})
		}
	})
}

// Kill ends the server and its connections. Its keys stay. It can be called again.
func (s *Store) Kill() {
	s.Resume()
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

// onCommand is called before each command, by the goroutine of its connection.
func (s *Store) onCommand(client *server.Peer, name string, args []string) (done bool) {
	s.mu.Lock()
	s.calls[name]++
	answer := s.answers[name]
	s.mu.Unlock()
	if answer != nil {
		answer(client, args)
	}
	return answer != nil
}

// Answer answers a command, in the goroutine of its connection.
type Answer func(client *server.Peer, args []string)

// Answer has commands of these names, in capitals, answered instead of being done; nil ends that.
func (s *Store) Answer(how Answer, names ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		s.answers[name] = how
	}
}

// Refuse has commands of these names, in capitals, answered with an error.
func (s *Store) Refuse(why string, names ...string) {
	s.Answer(func(client *server.Peer, _ []string) { client.WriteError(why) }, names...)
}

// pausable is a connection of a store, which reads nothing while the store is paused. What it has
// read is done to the end: a script must not wait, since it holds the lock of miniredis, for which
// others would wait in a way that stops the time.
type pausable struct {
	net.Conn
	of *Store
}

func (c pausable) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	for c.of.paused {
		c.of.changed.Wait()
	}
	return n, err
}

// Calls is how many commands of these names, in capitals, were asked so far; of all, if none is
// named.
func (s *Store) Calls(names ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(s.calls))
	}
	for _, name := range names {
		n += s.calls[name]
	}
	return n
}

// Scripts is how many scripts were asked for so far.
func (s *Store) Scripts() int { return s.Calls("EVAL", "EVALSHA") }

// Pause lets commands wait until Resume.
func (s *Store) Pause() { s.pause(true) }

// Resume lets a store go on that is paused.
func (s *Store) Resume() { s.pause(false) }

func (s *Store) pause(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.paused = on
	s.changed.Broadcast()
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
	if v, err := wire.Parse(raw); err == nil && v.Type == '$' {
		return v.Text
	}
	return strings.TrimSuffix(raw, "\r\n")
}

// StartBoth starts a Store and a proxy in front of it.
func StartBoth(t testing.TB) (*Store, *proxytest.Proxy) {
	t.Helper()
	store := StartStore(t)
	return store, proxytest.Start(t, store.URL(), nil)
}
