package proxy

import (
	"errors"
	"strconv"
	"strings"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// syncChannel is where nothing is said to nobody: see syncWrites.
const syncChannel = "lockproxy:wait"

var errWritesUnknown = errors.New("a connection to the upstream was lost since this client wrote: what its writes have become is unknown")

// syncWrites has the session's home count as one that has written what the session has by lanes, for a command that is about what the same
// connection has written. Up to Redis 7.0 any command that runs on it lets the upstream think so, and prelude is one. Later ones ask whether the
// command itself was passed on to replicas, as every message published is.
//
// The error is errSevered if the session must end, as it would have when it lost the connection on which it wrote; any other is the answer.
func (s *session) syncWrites(prelude []string) (done bool, err error) {
	if s.connect(passthrough.Home) != nil {
		return false, nil
	}
	if state := s.awaitState(); state.InMulti || state.Untracked || state.Streaming {
		return false, nil // nothing can be asked before it there
	}
	switch s.pipe.Status().Writes {
	case passthrough.AtHome:
		return false, nil
	case passthrough.Unknown:
		return false, errWritesUnknown
	}
	s.pipe.Pin(passthrough.Pinned)
	s.pipe.Relay(passthrough.Request{Raw: resp.AppendCommand(nil, prelude...), Discarded: true})
	if s.server.cfg.Upstream.IsCluster() {
		return true, nil
	}
	said, err := s.doHome("PUBLISH", syncChannel, "")
	if err != nil || !said.IsError() {
		return err == nil, nil // what comes next meets the same error
	}
	if hello, err := s.doHome("HELLO"); err != nil || offsetFollowsAny(hello) {
		return err == nil, nil
	}
	return false, lockcmd.UsageError("NOPERM lockproxy would have to PUBLISH to " + syncChannel + " to have the upstream count what this client has written by connections that it shares: it said: " +
		string(said.Text) + ". Allow that, or run lockproxy with --upstream-mode dedicated")
}

// own sends a command of the proxy's own by the session's own connection.
func (s *session) doHome(words ...string) (resp.Value, error) {
	answer := s.pipe.Do(resp.AppendCommand(nil, words...))[0]
	s.await(answer)
	return answer.Value()
}

// anyCommandCounts reports whether HELLO's answer is of a server on which WAIT after any command is about all that was written before it. An
// error is: before Redis 6 there was no HELLO.
func offsetFollowsAny(hello resp.Value) bool {
	if hello.IsError() {
		return true
	}
	for i := 0; i+1 < len(hello.Elems); i += 2 {
		if string(hello.Elems[i].Text) == "version" {
			return before72(string(hello.Elems[i+1].Text))
		}
	}
	return false
}

func before72(version string) bool {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	m, err := strconv.Atoi(major)
	n, err2 := strconv.Atoi(minor)
	return err == nil && err2 == nil && (m < 7 || m == 7 && n < 2)
}
