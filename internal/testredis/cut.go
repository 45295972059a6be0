package testredis

import (
	"bufio"
	"net"
	"strings"
	"time"

	"lockproxy/internal/resp"
)

// CutClients ends the connections of clients at once, with requests under way: some of these have
// been done, some have not, and few are answered. Sentinels, replicas and the master keep theirs.
func (s *Server) CutClients() {
	s.t.Helper()
	nc, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	in := bufio.NewReader(nc)
	nc.Write(resp.AppendCommand(nil, "CLIENT", "LIST"))
	list, err := resp.ParseValue(readReply(in))
	if err != nil {
		s.t.Fatalf("CLIENT LIST: %v", err)
	}
	var kill []byte
	for line := range strings.Lines(string(list.Text)) {
		facts := map[string]string{}
		for field := range strings.FieldsSeq(line) {
			name, value, _ := strings.Cut(field, "=")
			facts[name] = value
		}
		if facts["addr"] != nc.LocalAddr().String() &&
			!strings.HasPrefix(facts["name"], "sentinel-") &&
			!strings.ContainsAny(facts["flags"], "SM") {
			kill = resp.AppendCommand(kill, "CLIENT", "KILL", "ID", facts["id"])
		}
	}
	// What comes before and after it while the server stands still is read together.
	s.Pause()
	time.Sleep(100 * time.Millisecond)
	nc.Write(kill)
	time.Sleep(100 * time.Millisecond)
	s.Resume()
	nc.(*net.TCPConn).CloseWrite()
	for readReply(in) != nil {
	}
}
