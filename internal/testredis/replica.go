package testredis

import (
	"bufio"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"lockproxy/internal/resp"
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
	deadline := time.Now().Add(15 * time.Second)
	for ; master.acknowledged(n) < n; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a write on the master doesn't reach %d replicas", n)
		}
	}
	return replicas
}

// acknowledged writes something, and returns how many of n replicas say within a second that they
// have it.
func (s *Server) acknowledged(n int) int {
	nc, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return 0
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(2 * time.Second))
	nc.Write(resp.AppendCommand(resp.AppendCommand(nil, "PUBLISH", "testredis", ""), "WAIT",
		strconv.Itoa(n), "1000"))
	in := bufio.NewReader(nc)
	readReply(in)
	v, _ := resp.ParseValue(readReply(in))
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

// SyncAtOnce makes a master give a new replica its data at once, instead of waiting some seconds
// for others.
func (s *Server) SyncAtOnce() {
	s.t.Helper()
	if got := s.Ask("CONFIG", "SET", "repl-diskless-sync-delay", "0"); got != "+OK" {
		s.t.Fatalf("CONFIG SET: %s", got)
	}
}

// WaitInSync returns when a replica has all that its master has.
func (s *Server) WaitInSync() {
	s.t.Helper()
	for deadline := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		info := s.Ask("INFO", "replication")
		if strings.Contains(info, "role:slave") &&
			strings.Contains(info, "master_link_status:up") &&
			strings.Contains(info, "master_sync_in_progress:0") {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("no replica in sync:\n%s", info)
		}
	}
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
