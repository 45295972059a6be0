package proxy

import (
	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/passthrough"
)

// run is requests that stand side by side in a session's buffer and go on as one: what a client has
// pipelined mostly costs once what a request alone costs.
type batch struct {
	requests int
	bytes    int // they end at the session's start
	last     *command
	name     [commands.MaxName]byte // of last, as the client wrote it
	length   int
}

// maxRun is how many requests go on as one, so that a session waits for room in time.
const maxBatch = 256

// addToBatch adds a request to the batch, if it is one that nothing needs to be decided about.
func (s *session) addToBatch(req resp.Request) bool {
	if len(req.Args) == 0 || req.Inline || s.streaming || s.batch.bytes+len(req.Raw) > maxShared {
		return false
	}
	cmd := s.batch.lookup(req.Args[0])
	if !cmd.batchable(s.server.locks.Waiting()) {
		return false
	}
	if s.batch.requests == maxBatch {
		s.relayBatch()
	}
	s.meter.count(cmd.kind)
	s.start += len(req.Raw)
	s.batch.requests++
	s.batch.bytes += len(req.Raw)
	return true
}

// relayBatch passes on the batch.
func (s *session) relayBatch() {
	n := s.batch.requests
	if n == 0 {
		return
	}
	raw := s.buf[s.start-s.batch.bytes : s.start]
	s.batch.requests, s.batch.bytes = 0, 0
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
func (r *batch) lookup(name []byte) *command {
	if r.last != nil && string(name) == string(r.name[:r.length]) {
		return r.last
	}
	cmd := lookup(name)
	if len(name) <= commands.MaxName {
		r.last, r.length = cmd, copy(r.name[:], name)
	}
	return cmd
}
