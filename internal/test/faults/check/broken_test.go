//go:build linux

package check_test

import (
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"
)

// bugs are what can be wrong with a lockServer. Without any it keeps all promises.
type bugs struct {
	noOwnerCheck   bool // UNLOCK without a token frees any client's lock
	noCompare      bool // UNLOCK with a token frees the lock of any other token
	clientClock    bool // each proxy judges expiry by its own clock, and the clocks differ
	counterResets  bool // tokens count from 1 again whenever the lock becomes free
	sameToken      bool // tokens are the time, in units of 100 ms
	swapsReplies   bool // a reply sometimes goes to another connection
	lifo           bool // the waiter that came last is served first
	deadKeep       bool // a waiter that has left is given the lock nevertheless
	unfenced       bool // FENCE ignores the token
	silentSessions bool // session locks end with their timeout, and no client is told
	forgets        bool // a lock is free 200 ms early
	doublesWrites  bool // RPUSH is sometimes done twice, as by a proxy that retries
	losesWrites    bool // RPUSH is sometimes acknowledged and not done
	staleReads     bool // GET sometimes answers the value before the last
	sleeps         bool // a release wakes no waiter
}

// lockServer is a lock service of two proxies in memory. It
// can be broken, so that the checker can be tested.
type lockServer struct {
	bugs
	addrs []string
	stop  chan struct{}
	work  sync.WaitGroup

	mu     sync.Mutex
	locks  map[string]*heldLock // guarded by mu
	data   map[string][2]string // guarded by mu; now, and before
	lists  map[string][]string  // guarded by mu
	conns  map[*serverConn]bool // guarded by mu
	token  int64                // guarded by mu
	random *rand.Rand           // guarded by mu
}

type heldLock struct {
	token   int64
	by      *serverConn
	until   time.Time
	session bool
	queue   []*waiting
}

type waiting struct {
	on      *serverConn
	lease   time.Duration
	session bool
	given   chan int64
}

type serverConn struct {
	nc    net.Conn
	proxy int
	gone  chan struct{}
	wmu   sync.Mutex
}

func startServer(t *testing.T, b bugs) *lockServer {
	s := &lockServer{bugs: b, stop: make(chan struct{}), locks: map[string]*heldLock{},
		data: map[string][2]string{}, lists: map[string][]string{},
		conns: map[*serverConn]bool{}, random: rand.New(rand.NewPCG(1, 1)),
		token: time.Now().UnixMicro()}
	for i := range 2 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s.addrs = append(s.addrs, ln.Addr().String())
		s.work.Go(func() { <-s.stop; ln.Close() })
		s.work.Go(func() {
			for {
				nc, err := ln.Accept()
				if err != nil {
					return
				}
				s.work.Go(func() {
					s.serve(&serverConn{nc: nc, proxy: i, gone: make(chan struct{})})
				})
			}
		})
	}
	s.work.Go(s.tick)
	t.Cleanup(func() {
		close(s.stop)
		s.mu.Lock()
		for c := range s.conns {
			c.nc.Close()
		}
		s.mu.Unlock()
		s.work.Wait()
	})
	return s
}

// tick ends locks whose lease is over.
func (s *lockServer) tick() {
	for {
		select {
		case <-s.stop:
			return
		case <-time.After(time.Millisecond):
		}
		s.mu.Lock()
		for key, l := range s.locks {
			if l.by == nil {
				continue
			}
			if s.expired(l, 0) {
				s.free(key, l)
			}
		}
		s.mu.Unlock()
	}
}

func (s *lockServer) expired(l *heldLock, proxy int) bool {
	now := time.Now()
	if s.forgets {
		now = now.Add(200 * time.Millisecond)
	}
	if s.clientClock && proxy == 1 {
		now = now.Add(300 * time.Millisecond)
	}
	return !now.Before(l.until)
}

// free ends a lock and gives it to the next waiter; mu is held.
func (s *lockServer) free(key string, l *heldLock) {
	l.by, l.until = nil, time.Time{}
	if s.counterResets {
		l.token = 0
	}
	if s.sleeps {
		return
	}
	for len(l.queue) > 0 && l.by == nil {
		i := 0
		if s.lifo {
			i = len(l.queue) - 1
		}
		w := l.queue[i]
		l.queue = append(l.queue[:i:i], l.queue[i+1:]...)
		select {
		case <-w.on.gone:
			if !s.deadKeep {
				continue
			}
		default:
		}
		w.given <- s.give(l, w)
	}
}

func (s *lockServer) give(l *heldLock, w *waiting) int64 {
	switch {
	case s.counterResets:
		l.token++
	case s.sameToken:
		l.token = time.Now().UnixMilli() / 100
	default:
		s.token++
		l.token = s.token
	}
	l.by, l.until, l.session = w.on, time.Now().Add(w.lease), w.session
	if l.session && !s.silentSessions {
		l.until = time.Now().Add(time.Hour)
	}
	return l.token
}
