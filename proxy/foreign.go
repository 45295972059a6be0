package proxy

// Requests of clients that do not know LOCK, as far as they concern locks.

import (
	"slices"

	"lockproxy/internal/foreign"
	"lockproxy/internal/resp"
)

// observesForeign reports whether a request that is relayed unchanged must be examined. The table
// says that those of most commands need not.
func (x *exchange) observesForeign(cmd *command, args [][]byte) bool {
	switch locks := x.server.locks; cmd.Foreign {
	case foreign.None:
		return false
	case foreign.Sets:
		return foreign.MaySetNX(args)
	case foreign.Deletes, foreign.Expires:
		return locks.WatchesForeign() && slices.ContainsFunc(args[1:], locks.MayMatter)
	case foreign.Runs:
		return foreign.TakesLock(args) ||
			locks.WatchesForeign() && cmd.Keys.Match(args, locks.MayMatter)
	case foreign.Replaces:
		return locks.Waiting()
	}
	return true
}

// observeForeign returns the function to call with the reply to a request, or nil.
func (x *exchange) observeForeign(cmd *command, args [][]byte) func(resp.Head) {
	cmd = cmd.of(args)
	if !x.observesForeign(cmd, args) {
		return nil
	}
	state, settled := x.pipe.State()
	db := state.DB
	if !settled { // it runs behind a SELECT that has no reply yet
		list := x.pipe.Databases()
		db = list[len(list)-1]
	}
	by := foreign.Client{Addr: x.client.holder.Addr, Name: state.Name, Library: state.LibName}
	if state.LibVer != "" {
		by.Library += " " + state.LibVer
	}
	return x.server.locks.ObserveForeign(db, by, cmd.Foreign, args, &cmd.Keys)
}
