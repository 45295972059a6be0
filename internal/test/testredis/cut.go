package testredis

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// CutClients ends the connections of clients at once, with requests under way, which there must be:
// some of these have been done, some have not, and few are answered. Sentinels, replicas and the
// master keep theirs.
func (s *Server) CutClients() {
	s.t.Helper()
	nc := s.dial()
	if nc == nil {
		s.t.Fatalf("no connection to port %d", s.port)
	}
	defer s.hangUp(nc)
	in := bufio.NewReader(nc)
	nc.Write(wire.Append(nil, "CLIENT", "LIST"))
	list, err := wire.Parse(readReply(in))
	if err != nil {
		s.t.Fatalf("CLIENT LIST: %v", err)
	}
	var kill []byte
	for line := range strings.Lines(list.Text) {
		facts := map[string]string{}
		for field := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(field, "=")
			facts[name] = value
		}
		if facts["addr"] != nc.LocalAddr().String() &&
			!strings.HasPrefix(facts["name"], "sentinel-") &&
			!strings.ContainsAny(facts["flags"], "SM") {
			kill = wire.Append(kill, "CLIENT", "KILL", "ID", facts["id"])
		}
	}
	// What comes before it while the server is stopped is read together with it. If nobody asks it
	// just then it goes on: stopped for long it would be taken for dead, and nobody would ask it.
	testwait.Until(s.t, fmt.Sprintf("a request waits at port %d", s.port), func() bool {
		s.stop()
		waits := s.hasUnread()
		if !waits {
			s.Resume()
		}
		return waits
	})
	nc.Write(kill)
	s.Resume()
	for range strings.Count(string(kill), "KILL") {
		readReply(in)
	}
}

// hasUnread reports whether there is a connection to the server with bytes that it hasn't read.
func (s *Server) hasUnread() bool {
	// of the server's network: /proc/net is about that of this process's first thread
	sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	port := fmt.Sprintf(":%04X", s.port)
	for line := range strings.Lines(string(sockets)) {
		// number, local address, remote address, state, bytes unsent and unread, …
		fields := strings.Fields(line)
		if len(fields) > 4 && strings.HasSuffix(fields[1], port) && fields[3] == "01" &&
			!strings.HasSuffix(fields[4], ":00000000") {
			return true
		}
	}
	return false
}
