package passthrough

import (
	"bytes"
	"slices"
	"time"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// State is the state of one upstream connection as its replies tell it. It is pure: no I/O, no clock.
type State struct {
	upstream.Identity
	upstream.Labels
	// Admitted says that the upstream has answered the session otherwise than with an error: it may talk to it, as who it is.
	Admitted  bool
	InMulti   bool // within MULTI
	Watching  bool // a client's own WATCH is in force
	Untracked bool // replies can't be counted any more: lock commands are not possible
	Streaming bool // the stream is no longer made of replies at all

	initial            upstream.Identity
	queued             []queuedExpect // what EXEC will make true
	inQueue            int            // commands that EXEC will run
	subscriptions      commands.Subscriptions
	monitor            bool
	tracking           bool
	unknownState       bool // Marks
	stickyState        bool // Stays
	knownID            bool // Known
	pauses             pauseChange
	fresh              bool // RESET has been done, and nothing sent since
	replyOff, skipNext bool
}

func newState(initial upstream.Identity) State {
	return State{Identity: initial, initial: initial, Admitted: initial.LoggedIn}
}

func (s *State) setup() upstream.Setup { return upstream.Setup{Identity: s.Identity, Labels: s.Labels} }

// Muted reports whether CLIENT REPLY keeps the next command's reply from the client.
func (s *State) Muted() bool { return s.replyOff || s.skipNext }

// Shareable reports whether another connection that is set up so would do as well for what comes next.
func (s *State) Shareable() bool {
	return s.Plain() && !s.Watching && !s.tracking && !s.unknownState && !s.stickyState && s.Admitted
}

// replaceable reports whether a new connection would do as well, though others have seen this one.
func (s *State) replaceable() bool {
	own := s.LoggedIn && (s.User != s.initial.User || s.Password != s.initial.Password)
	return s.Plain() && !s.Watching && !s.tracking && !s.unknownState && !s.stickyState && !s.knownID && !own
}

// Subscribed reports whether the connection is in RESP2's subscribe mode, in which few commands are allowed.
func (s *State) Subscribed() bool { return s.Proto == 2 && s.subscriptions.All() > 0 }

// Plain reports whether nothing but Identity tells this connection from a new one.
func (s *State) Plain() bool {
	return !s.InMulti && !s.Untracked && !s.Streaming && s.subscriptions.All() == 0 && !s.monitor && !s.replyOff && !s.skipNext
}

// apply takes the reply to a request into account.
func (s *State) apply(e Expect, h resp.Head) {
	if s.InMulti && h.Type == '+' && string(h.Line) == "QUEUED" {
		if e.Effect != commands.NoEffect {
			s.queued = append(s.queued, queuedExpect{e, s.inQueue})
		}
		s.inQueue++
		return
	}
	s.admit(e.Effect, h)
	switch e.Effect {
	case commands.NoEffect, commands.Quit, commands.Closes, commands.Unanswered, MaybeUnanswered:
	case commands.UnknownState, commands.StickyState:
		if !neverRan(h) { // else even if it failed
			s.succeeded(e)
		}
	case commands.Watch:
		s.Watching = s.Watching || h.IsOK()
	case commands.Unwatch:
		s.Watching = s.Watching && !h.IsOK()
	case commands.Multi:
		if h.IsOK() {
			s.InMulti, s.inQueue = true, 0
		}
	case commands.Exec:
		if h.Type == '*' && string(h.Line) != "-1" {
			s.executed(h)
		}
		s.leaveMulti(!h.IsError() || s.aborted(h), h)
	case commands.Discard:
		s.leaveMulti(h.IsOK(), h)
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

// leaveMulti takes the reply of EXEC or DISCARD into account. ended says that it has ended the transaction and the WATCH; otherwise both are still
// in force, unless the error says that there is no transaction.
func (s *State) leaveMulti(ended bool, h resp.Head) {
	switch {
	case ended:
		s.InMulti, s.Watching, s.queued = false, false, nil
	case bytes.HasPrefix(h.Line, []byte("ERR EXEC without MULTI")), bytes.HasPrefix(h.Line, []byte("ERR DISCARD without MULTI")):
		s.InMulti, s.queued = false, nil
	}
}

// aborts begin the errors with which EXEC ends a transaction. After every other one it goes on: up to Redis 6.0 after all that would be
// EXECABORT now. In a cluster a node says where the keys are, and the proxy that a node was lost.
var aborts = []string{"ERR Transaction contains write", "MOVED ", "ASK ", "CLUSTERDOWN", "CROSSSLOT", "TRYAGAIN", upstream.Prefix}

// aborted reports whether EXEC's error has ended the transaction and the WATCH; EXECABORT also ends a WATCH alone.
func (s *State) aborted(h resp.Head) bool {
	begins := func(text string) bool { return bytes.HasPrefix(h.Line, []byte(text)) }
	return begins("EXECABORT") || s.InMulti && slices.ContainsFunc(aborts, begins)
}

// reset makes the state what RESET leaves. What the library has said of itself it doesn't touch.
func (s *State) reset() {
	after := newState(s.initial)
	after.LibName, after.LibVer, after.stickyState, after.knownID, after.fresh = s.LibName, s.LibVer, s.stickyState, s.knownID, true
	*s = after
}

// unknownTo begin the replies that say that there is no such command, or none by its second word; the last one before Redis 7.0.
var unknownTo = []string{"ERR unknown command", "ERR unknown subcommand", "ERR Unknown subcommand or wrong number of arguments"}

// pauseChange is what a reply tells of a pause of writes, once until it is taken.
type pauseChange struct {
	made  bool
	lasts time.Duration // 0 if it is over
}

// neverRan reports whether a reply says so: then the command has left nothing.
func neverRan(h resp.Head) bool {
	return h.IsError() && slices.ContainsFunc(unknownTo, func(text string) bool { return bytes.HasPrefix(h.Line, []byte(text)) })
}

// failed takes an error into account of a command that may have done a part of what it says: up to Redis 7.0 HELLO logs in, and takes
// a name, before it looks at what stands behind that.
func (s *State) failed(e Expect) {
	if e.Effect == commands.Hello && (e.Text != nil || e.Change == nil || e.Change.LoggedIn) {
		s.unknownState = true
	}
	if e.Effect == commands.StickyState {
		s.stickyState = true
	}
}

// trust takes a reply as a sign that the upstream lets the session talk to it. It gives RESET and QUIT to anybody.
func (s *State) admit(e commands.Effect, h resp.Head) {
	if !h.IsError() && e != commands.Reset && e != commands.Quit {
		s.Admitted = true
	}
}

// queuedExpect is a command with an effect that MULTI has queued as number `at`, from 0.
type queuedExpect struct {
	Expect
	at int
}

// executed makes true what EXEC ran and didn't fail.
func (s *State) executed(h resp.Head) {
	for _, q := range s.queued {
		if !slices.Contains(h.Errors, q.at) {
			s.succeeded(q.Expect)
		} else {
			s.failed(q.Expect)
		}
	}
	if h.ManyErrors && len(s.queued) > 0 {
		s.Untracked = true // whether one of them is among the errors that were not noted can't be said
	}
}

// succeeded makes e's effect true.
func (s *State) succeeded(e Expect) {
	switch {
	case e.Change != nil:
		s.merge(e)
	case e.Effect == commands.Select:
		s.unknownState = true // it was too large to see what it changes
	case e.Effect == commands.Auth || e.Effect == commands.Hello:
		s.Untracked = true // it was too large to see what it changes, which may be the user
		if e.Proto != 0 {
			s.Proto = e.Proto
		}
	case e.Effect.Subscribes():
		// Only in EXEC: a confirmation for each channel, within an array that counts one for them all.
		s.Untracked = true
	case e.Effect == commands.Unanswered:
		s.Untracked = true // only in EXEC, whose array counts a reply that isn't there
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
		s.tracking = true
	case commands.TrackingOff:
		s.tracking = false
	case commands.SetName:
		s.Name = *e.Text
	case commands.Hello:
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

// merge takes from e.Change what its effect can change: SELECT the database; AUTH the user; HELLO the protocol unless 0,
// and the user if it brought one.
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
