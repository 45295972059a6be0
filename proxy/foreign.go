package proxy

// Requests of clients that do not know LOCK, as far as they concern locks.

import (
	"slices"

	"lockproxy/internal/foreign"
	"lockproxy/internal/resp"
)

// observesForeign reports whether a request that is relayed unchanged must be examined. The table
// says that those of most commands need not.
func (d *dispatcher) observesForeign(cmd *command, args [][]byte) bool {
	switch cmd.Foreign {
	case foreign.None:
		return false
	case foreign.Sets:
		return foreign.MaySetNX(args)
	case foreign.Deletes, foreign.Expires:
		return slices.ContainsFunc(args[1:], d.server.locks.MayConcern)
	case foreign.Runs:
		return d.server.locks.TakesForeign(args) ||
			d.server.locks.WatchesForeign() && cmd.Keys.Match(args, d.server.locks.MayConcern)
	case foreign.Replaces:
		return d.server.locks.Waiting()
	}
	return true
}

// observeForeign returns the function to call with the reply to a request, or nil.
func (d *dispatcher) observeForeign(cmd *command, args [][]byte) func(resp.Head) {
	cmd = cmd.of(args)
	if !d.observesForeign(cmd, args) {
		return nil
	}
	state, _ := d.pipe.State()
	by := foreign.Client{Addr: d.client.holder.Addr, Name: state.Name, Library: state.LibName}
	if state.LibVer != "" {
		by.Library += " " + state.LibVer
	}
	return d.server.locks.ObserveForeign(state.DB, by, cmd.Foreign, args, &cmd.Keys)
}
