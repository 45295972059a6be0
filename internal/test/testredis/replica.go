package testredis

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// StartReplicas starts n replicas of master, and returns when they have all that it has. The
// arguments are as for Start.
func StartReplicas(t testing.TB, master *Server, n int, args ...string) []*Server {
	t.Helper()
	master.SyncAtOnce()
	replicas := make([]*Server, n)
	host, port, _ := net.SplitHostPort(master.Addr())
	for i := range replicas {
		replicas[i] = Start(t, append([]string{"--replicaof", host, port}, args...)...)
	}
	for _, replica := range replicas {
		replica.WaitInSync()
	}
	testwait.Until(t, fmt.Sprintf("a write on the master reaches %d replicas", n),
		func() bool { return master.acknowledged(n) >= n })
	return replicas
}

// acknowledged writes something, and returns how many of n replicas say soon that they have it.
func (s *Server) acknowledged(n int) int {
	replies := s.askAll([][]string{{"PUBLISH", "testredis", ""},
		{"WAIT", strconv.Itoa(n), "1000"}})
	v, _ := wire.Parse(replies[1])
	return int(v.Int)
}

// Replicate makes s a replica of master, and returns when it has all that the master has.
func (s *Server) Replicate(master *Server) {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(master.Told())
	// It can be that already, by the Sentinels' word: "OK Already connected to specified master".
	if got := s.Ask("REPLICAOF", host, port); !strings.HasPrefix(got, "+OK") {
		s.t.Fatalf("REPLICAOF: %s", got)
	}
	s.WaitInSync()
}

// SyncAtOnce makes a master give a new replica its data at once and by a file: otherwise it waits
// some seconds for other replicas, and then a second for the replica's word.
func (s *Server) SyncAtOnce() {
	s.t.Helper()
	if got := s.Ask("CONFIG", "SET", "repl-diskless-sync", "no"); got != "+OK" {
		s.t.Fatalf("CONFIG SET: %s", got)
	}
}

// WaitInSync returns when a replica has all that its master has.
func (s *Server) WaitInSync() {
	s.t.Helper()
	testwait.Until(s.t, fmt.Sprintf("the replica on port %d is in sync", s.port), func() bool {
		info := s.Ask("INFO", "replication")
		return strings.Contains(info, "role:slave") &&
			strings.Contains(info, "master_link_status:up") &&
			strings.Contains(info, "master_sync_in_progress:0")
	})
}

// Role is "master" or "slave", or "" if the server doesn't answer.
func (s *Server) Role() string {
	for line := range strings.SplitSeq(s.Ask("INFO", "replication"), "\r\n") {
		if role, ok := strings.CutPrefix(line, "role:"); ok {
			return role
		}
	}
	return ""
}

// KnowsWaitaof reports whether a server has WAITAOF, which came with Redis 7.2.
func (s *Server) KnowsWaitaof() bool {
	return !strings.HasPrefix(s.Ask("WAITAOF", "0", "0", "1"), "-ERR unknown command")
}
