package passthrough

import (
	"bytes"
	"slices"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// State is the state of a home according to its replies. It is pure: no I/O, no clock.
type State struct {
	upstream.Identity
	upstream.Labels
	Admitted  bool // Redis has sent a reply that is no error, so this login may use it
	InMulti   bool // within MULTI
	Watching  bool // a WATCH of the client is in force
	Untracked bool // replies can't be matched with requests any more: lock commands are impossible
	Streaming bool // the connection carries a replication stream instead of replies
	// LoginFailed says that the one after RESET has: Identity is wrong.
	LoginFailed bool

	initial       upstream.Identity
	queued        []queuedExpect // what EXEC will make true
	inQueue       int            // commands that EXEC will run
	queuedBytes   int            // of queued; more than maxQueued if commands were left out
	subscriptions commands.Subscriptions
	monitor       bool
	tracking      bool
	unknownState  bool // see commands.UnknownState, and so on
	stickyState   bool
	knownID       bool
	number        int64 // that CLIENT ID has told the client; 0 if it has not
	// spent says that the connection must serve no other client: HELLO has told its number, or
	// invalidations can still come.
	spent              bool
	pauses             pauseChange
	fresh              bool // nothing was sent since RESET
	replyOff, skipNext bool
}

func newState(initial upstream.Identity) State {
	return State{Identity: initial, initial: initial}
}

func (s *State) setup() upstream.Setup {
	return upstream.Setup{Identity: s.Identity, Labels: s.Labels}
}

// Muted reports whether CLIENT REPLY keeps the next command's reply from the client.
func (s *State) Muted() bool { return s.replyOff || s.skipNext }

// Shareable reports whether the next request can go by a lane with the same Identity.
func (s *State) Shareable() bool {
	return s.likeNew() && s.Admitted
}

// onlyTracks reports whether requests could go by a lane if the connection did not track keys.
func (s *State) onlyTracks() bool {
	return s.tracking && s.likeNewOrTracks() && s.Admitted
}

// replaceable reports whether a new home can take the place of this one.
func (s *State) replaceable() bool {
	return s.likeNew() && !s.knownID && !s.own()
}

// own reports whether the client has logged in as somebody else than a new one is.
func (s *State) own() bool {
	return s.LoggedIn && (s.User != s.initial.User || s.Password != s.initial.Password)
}

// likeNew reports whether the connection differs from a new one only by what setup says.
func (s *State) likeNew() bool { return s.likeNewOrTracks() && !s.tracking }

// likeNewOrTracks is likeNew, also of a connection that tracks keys.
func (s *State) likeNewOrTracks() bool {
	return s.Plain() && !s.Watching && !s.unknownState && !s.stickyState && !s.LoginFailed
}

// Subscribed reports whether the connection is in RESP2's subscribe mode, in which few commands are
// allowed.
func (s *State) Subscribed() bool { return s.Proto == 2 && s.subscriptions.All() > 0 }

// Plain reports whether the connection replies as a new one with the same Identity does.
func (s *State) Plain() bool {
	return !s.InMulti && !s.Untracked && !s.Streaming && s.subscriptions.All() == 0 && !s.monitor &&
		!s.replyOff && !s.skipNext
}

// apply applies the reply to a request.
func (s *State) apply(e Expect, h resp.Head) {
	if s.InMulti && h.Type == '+' && string(h.Line) == "QUEUED" {
		if e.Effect != commands.NoEffect {
			if s.queuedBytes += queuedSize + e.held; s.queuedBytes <= maxQueued {
				s.queued = append(s.queued, queuedExpect{e, s.inQueue})
			}
		}
		s.inQueue++
		return
	}
	s.admit(e.Effect, h)
	if n, ok := resp.ParseInt(h.Line); ok && e.Effect == commands.KnownID && h.Type == ':' {
		s.number = n
	}
	switch e.Effect {
	case commands.NoEffect, commands.Quit, commands.Closes, commands.Unanswered:
	case commands.UnknownState, commands.StickyState:
		if !neverRan(h) { // otherwise even if it failed
			s.succeeded(e)
		}
	case commands.Watch:
		s.Watching = s.Watching || h.IsOK()
	case commands.Unwatch:
		s.Watching = s.Watching && !h.IsOK()
	case commands.Multi:
		if h.IsOK() {
			s.InMulti, s.inQueue, s.queuedBytes = true, 0, 0
		}
	case commands.Exec:
		if hasRun(h) {
			s.executed(h)
		}
		s.leaveMulti(!h.IsError() || s.aborted(h), h)
	case commands.Discard:
		lost := s.InMulti && bytes.HasPrefix(h.Line, []byte(upstream.Prefix)) // with its node
		s.leaveMulti(h.IsOK() || lost, h)
	case commands.Reset:
		if !h.IsError() {
			s.reset()
		}
	default:
		if !h.IsError() {
			s.succeeded(e)
		} else if !neverRan(h) {
			s.failed(e)
		}
	}
}

// hasRun reports whether EXEC, whose reply is h, has run the transaction.
func hasRun(h resp.Head) bool { return h.Type == '*' && string(h.Line) != "-1" }

// leaveMulti applies the reply to EXEC or DISCARD. ended says that transaction and WATCH have
// ended. Otherwise both go on, unless the error says that there is no transaction.
func (s *State) leaveMulti(ended bool, h resp.Head) {
	switch {
	case ended:
		s.InMulti, s.Watching, s.queued = false, false, nil
	case bytes.HasPrefix(h.Line, []byte("ERR EXEC without MULTI")),
		bytes.HasPrefix(h.Line, []byte("ERR DISCARD without MULTI")):
		s.InMulti, s.queued = false, nil
	}
}

// aborts are prefixes of the errors with which EXEC ends a transaction. After any other error it
// goes on (up to Redis 6.0, in cases that are EXECABORT now). Some come from cluster nodes, or from
// the proxy.
var aborts = []string{"ERR Transaction contains write", "MOVED ", "ASK ", "CLUSTERDOWN",
	"CROSSSLOT", "TRYAGAIN", upstream.Prefix}

// aborted reports whether EXEC's error has ended the transaction and the WATCH; EXECABORT also ends
// a WATCH alone.
func (s *State) aborted(h resp.Head) bool {
	begins := func(text string) bool { return bytes.HasPrefix(h.Line, []byte(text)) }
	return begins("EXECABORT") || s.InMulti && slices.ContainsFunc(aborts, begins)
}

// reset sets the state after RESET, which keeps the library's name and version.
func (s *State) reset() {
	after := newState(s.initial)
	after.LibName, after.LibVer, after.stickyState, after.fresh = s.LibName, s.LibVer,
		s.stickyState, true
	after.knownID, after.number, after.spent = s.knownID, s.number, s.spent
	*s = after
}

// unknownTo are prefixes of the errors for unknown commands and subcommands; the last one is of
// Redis before 7.0.
var unknownTo = []string{"ERR unknown command", "ERR unknown subcommand",
	"ERR Unknown subcommand or wrong number of arguments"}

// pauseChange says that a reply has changed the pause of writes.
type pauseChange struct {
	made  bool
	lasts time.Duration // 0 if it is over
}

// neverRan reports whether the command was unknown, and so has changed nothing.
func neverRan(h resp.Head) bool {
	return h.IsError() && slices.ContainsFunc(unknownTo,
		func(text string) bool { return bytes.HasPrefix(h.Line, []byte(text)) })
}

// failed applies the error of a command that may have done a part of its work: up to Redis 7.0,
// HELLO logs in and sets a name before it checks its further arguments.
func (s *State) failed(e Expect) {
	if e.Effect == commands.Hello && (e.Text != nil || e.Change == nil || e.Change.LoggedIn) {
		s.unknownState = true
	}
	if e.Effect == commands.StickyState {
		s.stickyState = true
	}
}

// admit sets Admitted, unless the reply is an error, or to RESET or QUIT, which Redis allows
// everybody.
func (s *State) admit(e commands.Effect, h resp.Head) {
	if !h.IsError() && e != commands.Reset && e != commands.Quit {
		s.Admitted = true
	}
}

// queuedExpect is a command with an effect in a transaction; at is its index, from 0.
type queuedExpect struct {
	Expect
	at int
}

const (
	queuedSize = 100     // bytes of a queuedExpect, about
	maxQueued  = 1 << 20 // bytes of all in one transaction
)

// executed applies the effects of the commands that EXEC ran.
func (s *State) executed(h resp.Head) {
	for _, q := range s.queued {
		if !slices.Contains(h.Errors, q.at) {
			s.succeeded(q.Expect)
		} else {
			s.failed(q.Expect)
		}
	}
	// One of them may be among the errors that Head left out, or it was itself left out.
	if h.ManyErrors && len(s.queued) > 0 || s.queuedBytes > maxQueued {
		s.Untracked = true
	}
}

// succeeded applies e's effect.
func (s *State) succeeded(e Expect) {
	switch {
	case e.Change != nil:
		s.merge(e)
	case e.Effect == commands.Select:
		s.unknownState = true // it was too large to parse
	case e.Effect == commands.Auth || e.Effect == commands.Hello:
		s.Untracked = true // it was too large to parse; the user may have changed
		if e.Proto != 0 {
			s.Proto = e.Proto
		}
	case e.Effect.Subscribes():
		// Only in EXEC: its array counts one reply for the confirmations of all channels.
		s.Untracked = true
	case e.Effect == commands.Unanswered:
		s.Untracked = true // only in EXEC, whose array counts a missing reply
	}
	switch e.Effect {
	case commands.UnknownState:
		s.unknownState = true
	case commands.StickyState:
		s.stickyState = true
	case commands.KnownID:
		s.knownID = true
	case commands.Pauses:
		s.pauses = pauseChange{true, time.Duration(e.Count) * time.Millisecond}
	case commands.Unpauses:
		s.pauses = pauseChange{made: true}
	case commands.TrackingOn:
		s.tracking, s.spent = true, true
	case commands.TrackingOff:
		s.tracking = false
	case commands.SetName:
		s.Name = *e.Text
	case commands.Hello:
		s.spent = true
		if e.Text != nil {
			s.Name = *e.Text
		}
	case commands.SetLibName:
		s.LibName = *e.Text
	case commands.SetLibVer:
		s.LibVer = *e.Text
	case commands.Monitor:
		s.monitor = true
	case commands.ReplyOn:
		s.replyOff = false
	case commands.ReplyOff:
		s.replyOff = true
	case commands.ReplySkip:
		s.skipNext = !s.replyOff
	}
}

// merge applies the part of e.Change that e.Effect can change: SELECT the database, AUTH the user,
// HELLO the protocol unless it is 0, and the user if it has one.
func (s *State) merge(e Expect) {
	switch e.Effect {
	case commands.Select:
		s.DB = e.Change.DB
	case commands.Hello:
		if e.Change.Proto != 0 {
			s.Proto = e.Change.Proto
		}
	}
	if e.Change.LoggedIn {
		s.User, s.Password, s.LoggedIn = e.Change.User, e.Change.Password, true
	}
}
