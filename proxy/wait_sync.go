package proxy

import (
	"errors"
	"fmt"
	"strings"

	"lockproxy/internal/resp"
	"lockproxy/lockcmd/syntax"
	"lockproxy/passthrough"
)

// syncing is what is sent before WAIT or WAITAOF: see syncWrites.
type syncing struct {
	noop       []string // has no effect
	propagated []string // likewise, but Redis propagates it: to replicas, or to the disk too
}

// PUBLISH is propagated to replicas alone. To SWAPDB fewer users have the right.
var (
	publish = []string{"PUBLISH", "lockproxy:wait", ""} // a channel without subscribers
	swap    = []string{"SWAPDB", "0", "0"}
)

var errWritesUnknown = errors.New("a connection to the upstream was lost since this client " +
	"wrote: the outcome of its writes is unknown")

const (
	countedShared = " to have the upstream count what this client has written by connections " +
		"that it shares"
	errCannotSync = syntax.UsageError("ERR lockproxy can do nothing" + countedShared + ", in a " +
		"cluster of Redis 7.2 or later: run it with --upstream-mode dedicated")
)

// syncWrites prepares the home for WAIT or WAITAOF, which count what their own connection has
// written: the home must count as having written what the client wrote by lanes. Up to Redis 7.0
// any command that runs on it is enough, so first.noop is sent. Later versions ask whether the
// connection's last command was propagated. In a cluster no command is that writes nothing.
//
// done says that the home is pinned and up to date. After errWritesUnknown the session must end, as
// it would have when it lost the connection on which it wrote. Any other error is the answer.
func (x *exchange) syncWrites(first *syncing) (done bool, err error) {
	if x.route(passthrough.Home, nil) != nil {
		return false, nil
	}
	if state := x.awaitState(); state.Has(
		passthrough.InMulti | passthrough.Untracked | passthrough.Streaming) {
		return false, nil // nothing can be asked before it there
	}
	switch x.pipe.Status().Writes {
	case passthrough.AtHome:
		return false, nil
	case passthrough.Unknown:
		return false, errWritesUnknown
	}
	x.pipe.Pin(passthrough.Pinned)
	x.pipe.Relay(passthrough.Request{Raw: resp.AppendCommand(nil, first.noop...),
		Discarded: true}, nil)
	cluster, refused := x.server.cfg.Locks.Cluster, errCannotSync
	if !cluster {
		counted, err := x.ask(resp.AppendCommand(nil, first.propagated...)).Value()
		if err != nil || !counted.IsError() {
			return err == nil, nil // what comes next meets the same error
		}
		refused = syntax.UsageError("NOPERM lockproxy would have to " +
			strings.TrimSpace(strings.Join(first.propagated, " ")) + countedShared + ": it said: " +
			string(counted.Text) + ". Allow that, or run lockproxy with --upstream-mode dedicated")
	}
	hello, err := x.ask(resp.AppendCommand(nil, "HELLO")).Value()
	switch {
	case err != nil && cluster:
		return false, err // it was one node's
	case err != nil || anyCommandSyncs(hello):
		return err == nil, nil
	}
	return false, refused
}

// anyCommandSyncs reports whether HELLO's answer is of a server where WAIT after any command counts
// all earlier writes: one before Redis 7.2. An error is one: before Redis 6 there was no HELLO.
func anyCommandSyncs(hello resp.Value) bool {
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
	var major, minor int
	_, err := fmt.Sscanf(version, "%d.%d", &major, &minor)
	return err == nil && (major < 7 || major == 7 && minor < 2)
}
