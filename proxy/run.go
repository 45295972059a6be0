package proxy

import (
	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/passthrough"
)

// run is requests that stand side by side in a session's buffer and go on as one: what a client has
// pipelined mostly costs once what a request alone costs.
type run struct {
	requests int
	bytes    int // they end at the session's start
	last     *command
	name     [commands.MaxName]byte // of last, as the client wrote it
	length   int
}

// maxRun is how many requests go on as one, so that a session waits for room in time.
const maxRun = 256

// joinsRun takes a request into the run, if it is one that nothing needs to be decided about.
func (s *session) joinsRun(req resp.Request) bool {
	if len(req.Args) == 0 || req.Inline || s.streaming || s.run.bytes+len(req.Raw) > maxShared {
		return false
	}
	cmd := s.run.lookup(req.Args[0])
	if !cmd.plain(s.server.locks.Waiting()) {
		return false
	}
	if s.run.requests == maxRun {
		s.endRun()
	}
	s.meter.counted(cmd.kind)
	s.start += len(req.Raw)
	s.run.requests++
	s.run.bytes += len(req.Raw)
	return true
}

// endRun passes on the run.
func (s *session) endRun() {
	n := s.run.requests
	if n == 0 {
		return
	}
	raw := s.buf[s.start-s.run.bytes : s.start]
	s.run.requests, s.run.bytes = 0, 0
	err := s.connect(passthrough.Shared)
	if err == nil {
		s.pipe.Relay(passthrough.Request{Raw: raw, N: n})
		return
	}
	for range n {
		s.reply(encodeError("", err))
	}
}

// lookup finds a command that is likely to be the one before.
func (r *run) lookup(name []byte) *command {
	if r.last != nil && string(name) == string(r.name[:r.length]) {
		return r.last
	}
	cmd := lookup(name)
	if len(name) <= commands.MaxName {
		r.last, r.length = cmd, copy(r.name[:], name)
	}
	return cmd
}
