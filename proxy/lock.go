package proxy

// A lock command, in its turn among a session's requests.

import (
	"errors"
	"fmt"
	"strings"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// runLock runs a lock command in its turn and gives the client its answer. It is a step on the client's own connection, but
// one whose reply is seen here first, so nothing that follows it is sent before.
func (s *session) runLock(spec *lockcmd.Spec, req resp.Request) {
	way := lookup(req.Args[0]).way
	state, settled := s.pipe.State()
	// Who may lock here stands in line from when he asks, though there may be no way to the upstream yet: his turn finds one.
	if spec.Name != "lock" || !settled || !state.Shareable() {
		if err := s.connect(way); err != nil {
			s.reply(encodeError(spec.Name, err))
			return
		}
		state = s.awaitState()
	}
	err := spec.CheckArity(req.Args)
	switch {
	case state.InMulti:
		if err == nil {
			err = errInMulti
		}
		s.pipe.Relay(passthrough.Request{Raw: abortMulti, Instead: encodeError(spec.Name, err)})
		return
	case err == nil && state.Untracked:
		err = errOpaque
	case err == nil && state.Watching && spec.Name == "fence":
		err = errWatching
	case err == nil && state.Subscribed():
		err = errSubscribed(spec.Name)
	}
	if err != nil {
		s.reply(s.unlessNoAuth(state, encodeError(spec.Name, err)))
		return
	}
	s.identity = state.Identity
	if way == passthrough.Home {
		s.pipe.Pin(passthrough.Pinned)
		defer s.pipe.Pin(passthrough.Unpinned)
	}
	reply := s.timed(spec, req.Args)
	if s.drains() {
		s.setCorked(true) // it may have begun to while this one waited
	}
	text := s.unlessNoAuth(state, encodeReply(spec.Name, reply, state.Proto))
	if reply.GivesLock() && !state.Muted() { // else it doesn't want to hear
		s.holder.MarkSent(reply, s.sentPosition(len(text)))
	}
	var late lockcmd.LateError
	if !errors.As(reply.Err, &late) || state.Muted() || !s.pipe.Reply(text, passthrough.Now) { // or it would come behind the answer that is late
		s.reply(text)
	}
	s.endWatch()
}

// refuseLarge answers a lock command that is too large to be held, once all of it has been skipped.
func (s *session) refuseLarge() {
	err := lockcmd.UsageError(fmt.Sprintf("ERR the %s command is larger than %d bytes (--client-buffer): "+
		"nothing was run", strings.ToUpper(s.tooLarge.Name), s.server.cfg.ClientBuffer))
	s.streaming, s.tooLarge = false, nil
	state := s.awaitState()
	if state.InMulti && s.connect(passthrough.Home) == nil {
		s.pipe.Relay(passthrough.Request{Raw: abortMulti, Instead: encodeError("", err)})
		return
	}
	s.reply(s.unlessNoAuth(state, encodeError("", err)))
}

// abortMulti is a request that every Redis refuses to queue, so that it aborts the transaction, as it does for a command of
// its own that is not allowed there.
var abortMulti = resp.AppendCommand(nil, "GET")

// awaitState is the state of the connection once everything asked before has been answered as far as it matters.
func (s *session) awaitState() passthrough.State {
	state, settled := s.pipe.State()
	if !settled {
		s.await(s.pipe.Barrier())
		state, _ = s.pipe.State()
	}
	return state
}
