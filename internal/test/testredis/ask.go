package testredis

import (
	"bufio"
	"net"
	"slices"
	"strings"

	"lockproxy/internal/test/testwait"
	"lockproxy/internal/test/wire"
)

// Ask sends one command on a new connection, logged in by the server's own password, and
// returns what is answered: as a text if it is one, otherwise raw. It takes as long as it takes,
// but is "" at once when the server is killed or paused, so that those who ask several can go on.
func (s *Server) Ask(command ...string) string {
	raw := s.ask(command...)
	if v, err := wire.Parse(raw); err == nil && v.Type == '$' {
		return v.Text
	}
	return strings.TrimSuffix(raw, "\r\n")
}

// ask is Ask, raw.
func (s *Server) ask(command ...string) string { return s.askAll([][]string{command})[0] }

// askAll sends commands together, and returns the raw replies, "" for those that don't come.
func (s *Server) askAll(commands [][]string) []string {
	replies := make([]string, len(commands))
	nc := s.dial()
	if nc == nil {
		return replies
	}
	defer s.hangUp(nc)
	in := bufio.NewReader(nc)
	if i := slices.Index(s.args, "--requirepass"); i >= 0 {
		nc.Write(wire.Append(nil, "AUTH", s.args[i+1]))
		readReply(in)
	}
	var out []byte
	for _, command := range commands {
		out = wire.Append(out, command...)
	}
	nc.Write(out)
	for i := range replies {
		replies[i] = readReply(in)
	}
	return replies
}

// dial connects to a server that runs, and returns nil if it doesn't. Pause and Kill end the
// connection.
func (s *Server) dial() net.Conn {
	if !s.runs() {
		return nil
	}
	nc, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return nil
	}
	nc.SetDeadline(testwait.Deadline())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		nc.Close()
		return nil
	}
	s.asking = append(s.asking, nc)
	return nc
}

func (s *Server) hangUp(nc net.Conn) {
	nc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = slices.DeleteFunc(s.asking, func(c net.Conn) bool { return c == nc })
}

// runs reports whether the test has neither killed nor paused the server.
func (s *Server) runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.down
}

// setDown notes whether the server is killed or paused, and then ends what asks it.
func (s *Server) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
	if down {
		for _, nc := range s.asking {
			nc.Close()
		}
		s.asking = nil
	}
}

// readReply is "" if there is no whole reply.
func readReply(in *bufio.Reader) string {
	raw, err := wire.ReadReply(in, wire.RESP2)
	if err != nil {
		return ""
	}
	return raw
}
