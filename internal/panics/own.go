package panics

import (
	"slices"
	"strings"
)

const module = "lockproxy/"

// entries are the functions that defer Contain: where the code of one client begins.
var entries = names(`
	lockproxy/proxy.(*session).handshaken
	lockproxy/proxy.(*session).begin
	lockproxy/proxy.(*session).run
	lockproxy/proxy.(*session).Ready
	lockproxy/passthrough.(*home).Consume
	lockproxy/passthrough.(*homeSide).closeIdle
	lockproxy/internal/cluster.(*node).Consume`)

// own is whatever changes no state but that of one client: types (package.Type), the functions of a
// package that are no methods (package.), and whole packages (package.*). All other code on the
// stack, of this module or another, can have changed what clients share.
//
// A lock command is not here from the moment at which it has begun: what it has asked of Redis, and
// what queues and tables say of it, would not agree any more.
var own = names(`
	lockproxy/internal/commands.*
	lockproxy/internal/fifo.*
	lockproxy/internal/monotonic.*
	lockproxy/internal/names.*
	lockproxy/internal/resp.*
	lockproxy/internal/slot.*
	lockproxy/internal/socket.*
	lockproxy/lockcmd/syntax.*
	lockproxy/internal/upstream.

	lockproxy/proxy.
	lockproxy/proxy.(*Server).handshake
	lockproxy/proxy.batch
	lockproxy/proxy.client
	lockproxy/proxy.command
	lockproxy/proxy.delayer
	lockproxy/proxy.dispatcher
	lockproxy/proxy.exchange
	lockproxy/proxy.input
	lockproxy/proxy.lockEnds
	lockproxy/proxy.meter
	lockproxy/proxy.phases
	lockproxy/proxy.session
	lockproxy/proxy.traffic
	lockproxy/proxy.waker

	lockproxy/passthrough.
	lockproxy/passthrough.Answer
	lockproxy/passthrough.Pipe
	lockproxy/passthrough.State
	lockproxy/passthrough.callBatch
	lockproxy/passthrough.client
	lockproxy/passthrough.clientWriter
	lockproxy/passthrough.connReader
	lockproxy/passthrough.demux
	lockproxy/passthrough.home
	lockproxy/passthrough.homeReasons
	lockproxy/passthrough.homeSide
	lockproxy/passthrough.laneSide
	lockproxy/passthrough.overflow
	lockproxy/passthrough.pendingQueue
	lockproxy/passthrough.pendingReply
	lockproxy/passthrough.replyFIFO

	lockproxy/internal/cluster.
	lockproxy/internal/cluster.Conn
	lockproxy/internal/cluster.answers
	lockproxy/internal/cluster.incoming
	lockproxy/internal/cluster.node
	lockproxy/internal/cluster.nodeSet
	lockproxy/internal/cluster.nodeState
	lockproxy/internal/cluster.outgoing
	lockproxy/internal/cluster.part
	lockproxy/internal/cluster.replyQueue
	lockproxy/internal/cluster.request
	lockproxy/internal/cluster.requestReader
	lockproxy/internal/cluster.settings
	lockproxy/internal/cluster.slotMap
	lockproxy/internal/cluster.slotOrder
	lockproxy/internal/cluster.slotOwners
	lockproxy/internal/cluster.subscriptions
	lockproxy/internal/cluster.txState`)

func names(text string) map[string]bool {
	set := map[string]bool{}
	for name := range strings.FieldsSeq(text) {
		set[name] = true
	}
	return set
}

// areOwn reports whether all functions that a panic has interrupted, up to an entry, change no
// state but that of one client.
func areOwn(functions []string) bool {
	last := len(functions) - 1
	return last >= 0 && entries[functions[last]] &&
		!slices.ContainsFunc(functions[:last], func(name string) bool { return !isOwn(name) })
}

// isOwn is areOwn for one function, by its full name: package.function, package.Type.method or
// package.(*Type).method, and behind that .func1 and the like for a function within it.
func isOwn(function string) bool {
	if from, to := strings.Index(function, "["), strings.LastIndex(function, "]"); from >= 0 && to > from {
		function = function[:from] + function[to+1:] // types of a generic one
	}
	path := strings.LastIndex(function, "/") + 1
	name, rest, _ := strings.Cut(function[path:], ".")
	pkg := function[:path] + name
	if !strings.HasPrefix(pkg, module) { // of the standard library, whose paths have no dots
		return pkg != "main" && !strings.Contains(pkg, ".")
	}
	parts := strings.Split(rest, ".")
	within := len(parts) < 2 || strings.HasPrefix(parts[1], "func") ||
		strings.HasPrefix(parts[1], "deferwrap") // of a function that is no method
	switch {
	case own[pkg+".*"]:
		return true
	case within:
		return own[pkg+"."]
	}
	return own[pkg+"."+strings.Trim(parts[0], "(*)")] || own[pkg+"."+parts[0]+"."+parts[1]]
}
