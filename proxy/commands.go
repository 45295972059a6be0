package proxy

import (
	"bytes"

	"lockproxy/internal/commands"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/lockcmd"
	"lockproxy/passthrough"
)

// command is what the proxy does with one command, by its row in the table of commands.
type command struct {
	*commands.Command
	lock *lockcmd.Spec
	way  passthrough.Way // by what connection it may go
	// identity returns what the connection becomes once the command has succeeded, and its name if
	// that is set too.
	identity func(args [][]byte) (*upstream.Identity, *string)
	// inspect decides by the arguments, where these differ.
	inspect func(r route, args [][]byte) route
	// catchUp is for WAIT and WAITAOF, which are about what the same connection has written.
	catchUp []string
	// introspect is for COMMAND, whose answer tells of the lock commands too.
	introspect bool
	// informs is for INFO, which has a section of the proxy's own.
	informs bool
	// shapes is for CLUSTER, which in front of a cluster tells of this proxy.
	shapes bool
	// ofNode is for what a client tells one node of a cluster about itself.
	ofNode bool
	// varies says that its subcommands go by different connections, or do different things to them.
	varies bool
	kind   Kind // as what it is counted
}

// table is all commands, by ID.
var table = commandTable()

func commandTable() []command {
	own := map[string]command{
		"select":       {identity: selectIdentity},
		"auth":         {identity: authIdentity},
		"hello":        {identity: helloIdentity},
		"client|pause": {inspect: inspectPause},
		"replconf":     {inspect: inspectReplconf},
		"wait":         {catchUp: []string{"WAIT", "0", "0"}},
		"waitaof":      {catchUp: []string{"WAITAOF", "0", "0", "0"}},
		"command":      {introspect: true, kind: Introspects},
		"info":         {informs: true},
		"cluster":      {shapes: true},
		"readonly":     {ofNode: true},
		"readwrite":    {ofNode: true},
		"asking":       {ofNode: true},
	}
	for i := range lockcmd.Specs {
		spec := &lockcmd.Specs[i]
		own[spec.Name] = command{lock: spec, kind: kindOf(spec)}
	}
	t := make([]command, len(commands.Rows))
	for i := range t {
		row := &commands.Rows[i]
		cmd := own[row.Name]
		delete(own, row.Name)
		cmd.Command, cmd.way = row, wayOf(row)
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

// wayOf is by what connection a command may go, unless its arguments say otherwise.
func wayOf(row *commands.Command) passthrough.Way {
	switch row.Class {
	case commands.Shared, commands.MayBlock:
		return passthrough.Shared
	case commands.Lock:
		if row.Name == "fence" { // it is a transaction
			return passthrough.Own
		}
		return passthrough.Shared
	case commands.Slow:
		return passthrough.Scripts
	}
	return passthrough.Own
}

func lookup(name []byte) *command { return &table[commands.Find(name).ID] }

// of is the command of a request: c, or its subcommand's own if that has one.
func (c *command) of(args [][]byte) *command {
	if !c.varies {
		return c
	}
	return &table[c.For(args).ID]
}

// plain reports whether every request of the command may share a connection and is relayed as it is.
// waiting says that the keys at which clients compete with LOCK are of interest.
func (c *command) plain(waiting bool) bool {
	return c.way == passthrough.Shared && c.Effect == commands.NoEffect && !c.whole() && c.relayed(waiting)
}

// relayed reports whether requests of the command are passed on in one step, and their replies
// likewise. waiting is as for plain.
func (c *command) relayed(waiting bool) bool {
	return c.lock == nil && !c.introspect && !c.informs && !c.shapes && c.catchUp == nil &&
		!(c.Competes && waiting)
}

// whole reports whether the command must be seen whole before it can be passed on.
func (c *command) whole() bool {
	return c.lock != nil || c.identity != nil || c.inspect != nil || c.varies || c.introspect ||
		c.informs || c.shapes
}

// fenceable reports whether a request may run within a transaction of the proxy's own: whether it
// neither blocks nor does anything to the connection, as far as anybody knows.
func (c *command) fenceable(args [][]byte) bool {
	r := routeOf(c, resp.Request{Args: args})
	return c.Class == commands.Other ||
		c.lock == nil && r.Effect == commands.NoEffect && r.way != passthrough.Own
}

// foreignLocks are the keys at which a client that does not know LOCK may be taking a lock.
func (c *command) foreignLocks(args [][]byte) (keys [][]byte) {
	if c.Name == "set" && !setsIfMissing(args) {
		return nil
	}
	for _, i := range c.Keys.Positions(args, nil) {
		keys = append(keys, args[i])
	}
	return keys
}

// setsIfMissing reports whether it is SET key value … NX, which many libraries send for SETNX.
func setsIfMissing(args [][]byte) bool {
	for _, option := range args[min(3, len(args)):] {
		if bytes.EqualFold(option, []byte("nx")) {
			return true
		}
	}
	return false
}
