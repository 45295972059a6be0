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

func init() { table = commandTable() } // not in the declaration, since answers look commands up

func commandTable() []command {
	own := map[string]command{
		"select":             {inspect: inspectSelect},
		"auth":               {inspect: inspectLogin},
		"hello":              {inspect: inspectLogin},
		"client|pause":       {inspect: inspectPause},
		"client|list":        {inspect: inspectNumbers},
		"acl|log":            {inspect: inspectNumbers},
		"client|tracking|on": {inspect: inspectTracking},
		"client|unblock":     {answer: answerUnblock},
		"replconf":           {inspect: inspectReplconf},
		"wait":               {syncFirst: &syncing{[]string{"WAIT", "0", "0"}, publish}},
		"waitaof":            {syncFirst: &syncing{[]string{"WAITAOF", "0", "0", "0"}, swap}},
		"command":            {answer: answerCommand, kind: Introspects},
		"info":               {answer: answerInfo},
		"cluster":            {answer: answerCluster},
	}
	for i := range syntax.Specs {
		spec := &syntax.Specs[i]
		own[spec.Name] = command{lock: spec, kind: kindOf(spec)}
	}
	t := make([]command, len(commands.Rows))
	for i := range t {
		row := &commands.Rows[i]
		cmd := own[row.Name]
		delete(own, row.Name)
		cmd.Command, cmd.way = row, ways[row.Class]
		if row.Class == commands.MayBlock {
			cmd.inspect = inspectRead
		}
		t[i] = cmd
		for of := row.Of; of != nil; of = of.Of {
			if row.Class != of.Class || row.Effect != of.Effect || cmd.inspect != nil {
				t[of.ID].varies = true
			}
		}
	}
	for name := range own {
		panic("proxy: " + name + " is not in the table of commands")
	}
	return t
}

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

// fenceable reports whether a request can run within a transaction of the proxy's own: whether it
// neither blocks nor does anything to the connection, as far as is known.
func fenceable(args [][]byte) bool {
	cmd := lookup(args[0])
	r := routeOf(cmd, resp.Request{Args: args})
	class := cmd.For(args).Class
	return class == commands.Other || class == commands.Occupying ||
		cmd.lock == nil && r.Effect == commands.NoEffect && r.Way != passthrough.Home &&
			!r.Numbers
}
