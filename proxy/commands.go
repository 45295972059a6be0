package proxy

import (
	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/lockcmd/syntax"
	"lockproxy/passthrough"
)

// command is what the proxy does with one command, by its row in the table of commands.
type command struct {
	*commands.Command
	kind Kind // as what it is counted
	lock *syntax.Spec
	way  passthrough.Way // by what connection it can go
	// inspect changes a request's route by its arguments; nil where these don't matter.
	inspect func(r passthrough.Request, args [][]byte) passthrough.Request
	// answer answers a request in place of the upstream. done is false if the upstream must answer.
	answer func(x *exchange, req resp.Request) (done bool)
	// syncFirst is for WAIT and WAITAOF, see syncWrites.
	syncFirst *syncing
	// varies says that subcommands differ in the connection that they go by, or in their effect.
	varies bool
}

// table is all commands, by ID.
var table []command

// ways are the connections by which commands can go, unless their arguments say otherwise; Home for
// all others.
var ways = map[commands.Class]passthrough.Way{
	commands.Shared: passthrough.Shared, commands.MayBlock: passthrough.Shared,
	commands.Lock: passthrough.Shared, commands.Slow: passthrough.Scripts,
	commands.Greeting: passthrough.Greets,
}

func lookup(name []byte) *command { return &table[commands.Find(name).ID] }

// of is the command of a request: c, or its subcommand's own if that has one.
func (c *command) of(args [][]byte) *command {
	if !c.varies {
		return c
	}
	return &table[c.For(args).ID]
}

// batchable reports whether every request of the command can go by a lane, and is relayed as it is,
// unless exchange.observesForeign or lockEnds.needsWatch says otherwise.
func (c *command) batchable() bool {
	return c.way == passthrough.Shared && c.Effect == commands.NoEffect && !c.mustBeWhole() &&
		c.oneStep()
}

// oneStep reports whether requests of the command, and their replies, are relayed in one step,
// unless answers says otherwise.
func (c *command) oneStep() bool {
	return c.lock == nil && c.answer == nil && c.syncFirst == nil
}

// answers is what answers a request in place of the upstream; nil for none.
func (c *command) answers(args [][]byte) func(x *exchange, req resp.Request) (done bool) {
	if c.answer != nil {
		return c.answer
	}
	return c.of(args).answer
}

// mustBeWhole reports whether a request of the command must be seen whole before it is relayed.
func (c *command) mustBeWhole() bool {
	return c.lock != nil || c.inspect != nil || c.answer != nil || c.varies
}
