package proxy

import (
	"slices"

	"lockproxy/internal/eventloop"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/failure"
	"lockproxy/lockcmd/script"
	"lockproxy/passthrough"
)

// lockSession is how the lock commands of a session ask the upstream.
type lockSession struct {
	*common
	x       *exchange
	late    *passthrough.Answer // of a script that was given up; nil if there was none
	loading *scriptLoad         // the last one by this session; nil for none
	waits   bool                // the command waits for other clients
	words   []string            // room for the words of a script's request
	request []byte              // room for its bytes
}

// isLate reports whether the answer to a script that was given up is still to come.
func (s *lockSession) isLate() bool { return s.late != nil && !s.late.Arrived() }

// lateScript is the answer to a script that comes too late for its command.
type lateScript struct{ to *passthrough.Answer }

// Answer implements failure.LateError's.
func (s lateScript) Answer() (a script.Answer, err error) {
	a.Value, err = s.to.Value()
	return a, err
}

// failure is err, which says if the session has lost the upstream.
func (s *lockSession) failure(err error) error {
	if err != nil && s.pipe.Lost() {
		return failure.SessionLost(err)
	}
	return err
}

// loadTogether makes the upstream load what can be needed with c's script, or next, if the user may
// SCRIPT LOAD. In an event loop it reports false if it would have to wait.
func (s *lockSession) loadTogether(c *script.Call, it *eventloop.Iteration) bool {
	cluster := s.server.cfg.Locks.Cluster
	var sent []*script.Script // by this session, behind whose requests this one goes
	if s.loading != nil && !cluster {
		sent = s.loading.scripts
	}
	for _, other := range c.Script.Together(cluster) {
		if slices.Contains(sent, other) {
			continue
		}
		raw := resp.AppendCommand(nil, other.LoadRequest(cluster, c.Keys[0])...)
		if !s.pipe.Relay(passthrough.Request{Raw: raw, Discarded: true}, it) {
			return false
		}
		sent = append(sent, other)
	}
	if s.loading != nil {
		s.loading.scripts = append(sent, c.Script)
	}
	return true
}
