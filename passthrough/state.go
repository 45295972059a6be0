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
	upstream.Setup
	Admitted bool // Redis has sent a reply that is no error, so this login may use it

	traits        Traits
	initial       upstream.Identity
	queued        []queuedExpect // what EXEC will make true
	inQueue       int            // commands that EXEC will run
	queuedBytes   int            // of queued; more than maxQueued if commands were left out
	subscriptions commands.Subscriptions
	number        int64 // that CLIENT ID has told the client; 0 if it has not
	pauses        pauseChange
	fresh         bool // nothing was sent since RESET
}

// Traits are the differences between a connection and a new one with the same settings.
type Traits uint16

const (
	InMulti     Traits = 1 << iota // within MULTI
	Watching                       // a WATCH of the client is in force
	Untracked                      // replies can't be matched with requests: no lock commands
	Streaming                      // it carries a replication stream instead of replies
	LoginFailed                    // the one after RESET has: Identity is wrong
	subscribed                     // to any channel
	monitoring
	replyOff
	skipNext
	tracking
	unknownState // see commands.UnknownState, and so on
	stickyState
	knownID
	// it must serve no other client: HELLO has told its number, or invalidations can still come
	spent

	// The connection replies in another way than a new one.
	repliesDiffer = InMulti | Untracked | Streaming | subscribed | monitoring | replyOff | skipNext
	// Requests have another effect on it, or are answered in another way.
	unlikeNew = repliesDiffer | Watching | LoginFailed | tracking | unknownState | stickyState
	// RESET leaves these.
	outliveReset = stickyState | knownID | spent
	// No other client may get the connection, be it by RESET.
	notForOthers = unlikeNew&^Watching | knownID | spent
)

func newState(initial upstream.Identity) State {
	return State{Setup: upstream.Setup{Identity: initial}, initial: initial}
}

// Muted reports whether CLIENT REPLY keeps the next command's reply from the client.
func (s *State) Muted() bool { return s.Has(replyOff | skipNext) }

// Has reports whether the connection has any of some traits.
func (s *State) Has(any Traits) bool { return s.traits&any != 0 }

// set has the connection have some traits, or none of them.
func (s *State) set(some Traits, has bool) {
	if s.traits &^= some; has {
		s.traits |= some
	}
}

// Shareable reports whether the next request can go by a lane with the same Identity.
func (s *State) Shareable() bool { return s.Admitted && !s.Has(unlikeNew) }

// onlyTracks reports whether requests could go by a lane if the connection did not track keys.
func (s *State) onlyTracks() bool { return s.Admitted && s.traits&unlikeNew == tracking }

// replaceable reports whether a new home can take the place of this one.
func (s *State) replaceable() bool { return !s.Has(unlikeNew|knownID) && !s.own() }

// own reports whether the client has logged in as somebody else than a new one is.
func (s *State) own() bool {
	return s.LoggedIn && (s.User != s.initial.User || s.Password != s.initial.Password)
}

// Subscribed reports whether the connection is in RESP2's subscribe mode, in which few commands are
// allowed.
func (s *State) Subscribed() bool { return s.Proto == 2 && s.Has(subscribed) }

// Plain reports whether the connection replies as a new one with the same Identity does.
func (s *State) Plain() bool { return !s.Has(repliesDiffer) }

// apply applies the reply to a request.
func (s *State) apply(e Expect, h resp.Head) {
	if s.Has(InMulti) && h.Type == '+' && string(h.Line) == "QUEUED" {
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
		s.set(Watching, s.Has(Watching) || h.IsOK())
	case commands.Unwatch:
		s.set(Watching, s.Has(Watching) && !h.IsOK())
	case commands.Multi:
		if h.IsOK() {
			s.set(InMulti, true)
			s.inQueue, s.queuedBytes = 0, 0
		}
	case commands.Exec:
		if hasRun(h) {
			s.executed(h)
		}
		s.leaveMulti(!h.IsError() || s.aborted(h), h)
	case commands.Discard:
		lost := s.Has(InMulti) && begins(h, upstream.Prefix) // with its node
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
	if ended {
		s.set(Watching, false)
	}
	if ended || begins(h, "ERR EXEC without MULTI", "ERR DISCARD without MULTI") {
		s.set(InMulti, false)
		s.queued = nil
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
	return begins(h, "EXECABORT") || s.Has(InMulti) && begins(h, aborts...)
}

// reset sets the state after RESET, which keeps the library's name and version.
func (s *State) reset() {
	after := newState(s.initial)
	after.LibName, after.LibVer, after.number, after.fresh = s.LibName, s.LibVer, s.number, true
	after.traits = s.traits & outliveReset
	*s = after
}

// unknownTo are prefixes of the errors for unknown commands and subcommands; the last one is of
// Redis before 7.0.
var unknownTo = []string{"ERR unknown command", "ERR unknown subcommand",
	"ERR Unknown subcommand or wrong number of arguments"}

// pauseChange says that a reply has changed the pause of writes.
type pauseChange struct {
	made  bool
	lasts time.Duration // below 0 if it is over
}

// neverRan reports whether the command was unknown, and so has changed nothing.
func neverRan(h resp.Head) bool { return h.IsError() && begins(h, unknownTo...) }

// begins reports whether a reply begins with one of some texts.
func begins(h resp.Head, texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool {
		return bytes.HasPrefix(h.Line, []byte(text))
	})
}

// failed applies the error of a command that may have done a part of its work: up to Redis 7.0,
// HELLO logs in and sets a name before it checks its further arguments.
func (s *State) failed(e Expect) {
	switch {
	case e.judged:
	case e.Effect == commands.StickyState:
		s.set(stickyState, true)
	case e.Effect == commands.Hello && (e.Text != nil || e.Change == nil || e.Change.LoggedIn):
		s.set(unknownState, true)
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
		s.set(Untracked, true)
	}
}

// succeeded applies e's effect.
func (s *State) succeeded(e Expect) {
	switch {
	case e.Change != nil:
		s.Identity = e.after(s.Identity)
	case e.Effect == commands.Select:
		s.set(unknownState, true) // it was too large to parse
	case e.Effect == commands.Auth || e.Effect == commands.Hello:
		s.set(Untracked, true) // it was too large to parse; the user may have changed
		if e.Proto != 0 {
			s.Proto = e.Proto
		}
	case e.Effect.Subscribes(), e.Effect == commands.Unanswered:
		// Only in EXEC: its array counts one reply for the confirmations of all channels, or one
		// that is missing.
		s.set(Untracked, true)
	}
	s.set(gains[e.Effect], true)
	switch e.Effect {
	case commands.Pauses:
		s.pauses = pauseChange{true, time.Duration(e.Count) * time.Millisecond}
	case commands.Unpauses:
		s.pauses = pauseChange{made: true, lasts: -1}
	case commands.TrackingOff:
		s.set(tracking, false)
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
	case commands.ReplyOn:
		s.set(replyOff, false)
	case commands.ReplySkip:
		s.set(skipNext, !s.Has(replyOff))
	}
}

// gains are the traits that a connection has after the success of what has an effect.
var gains = [commands.Effects + 1]Traits{
	commands.Hello: spent, commands.TrackingOn: tracking | spent, commands.Monitor: monitoring,
	commands.ReplyOff: replyOff, commands.KnownID: knownID,
	commands.UnknownState: unknownState, commands.StickyState: stickyState,
}

// after is id with the part of e.Change that e.Effect can change: SELECT the database, AUTH the
// user, HELLO the protocol unless it is 0, and the user if it has one.
func (e *Expect) after(id upstream.Identity) upstream.Identity {
	if e.Change == nil {
		return id
	}
	switch e.Effect {
	case commands.Select:
		id.DB = e.Change.DB
	case commands.Hello:
		if e.Change.Proto != 0 {
			id.Proto = e.Change.Proto
		}
	}
	if e.Change.LoggedIn {
		id.User, id.Password, id.LoggedIn = e.Change.User, e.Change.Password, true
	}
	return id
}
