package proxytest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
)

// SessionLocks are session locks of a proxy's clients.
type SessionLocks struct {
	T       testing.TB
	Direct  *redis.Client // of Redis
	Keys    []string
	Clients []*Conn
}

// TakeSessionLocks makes each of some clients of the proxy at addr take as many session locks.
func TakeSessionLocks(t testing.TB, direct *redis.Client, addr, timeout string,
	clients, each int) *SessionLocks {
	t.Helper()
	s := &SessionLocks{T: t, Direct: direct}
	var taking sync.WaitGroup
	for i := range clients {
		c := Dial(t, addr)
		var commands []string
		for j := range each {
			key := fmt.Sprintf("session-%d-%d", i, j)
			s.Keys = append(s.Keys, key)
			commands = append(commands, "LOCK "+key+" "+timeout+" SESSION")
		}
		s.Clients = append(s.Clients, c)
		taking.Go(func() {
			c.Send(commands...)
			for _, command := range commands {
				if got, err := c.TryReply(); err != nil || got[0] != ':' {
					t.Errorf("%s: %q, %v", command, got, err)
					return
				}
			}
		})
	}
	taking.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return s
}

// Held is how many of the locks Redis has.
func (s *SessionLocks) Held() (n int) {
	s.T.Helper()
	for keys := s.Keys; len(keys) > 0; keys = keys[min(len(keys), 500):] {
		got, err := s.Direct.Exists(Ctx, keys[:min(len(keys), 500)]...).Result()
		if err != nil {
			s.T.Fatal(err)
		}
		n += int(got)
	}
	return n
}

// AllHeld fails unless all locks are held.
func (s *SessionLocks) AllHeld() {
	s.T.Helper()
	if n := s.Held(); n < len(s.Keys) {
		s.T.Fatalf("%d of %d session locks are lost", len(s.Keys)-n, len(s.Keys))
	}
}

// Served fails unless all clients are answered.
func (s *SessionLocks) Served() {
	s.T.Helper()
	for _, c := range s.Clients {
		c.Send("PING")
	}
	for i, c := range s.Clients {
		if got, err := c.TryReply(); got != "+PONG\r\n" {
			s.T.Errorf("client %d: %q, %v", i, got, err)
		}
	}
}

// Close ends all clients at once.
func (s *SessionLocks) Close() {
	for _, c := range s.Clients {
		c.Close()
	}
}
