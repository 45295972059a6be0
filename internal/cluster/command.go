package cluster

import (
	"slices"
	"strings"

	"lockproxy/internal/commands"
)

// command is how one command goes to the cluster.
type command struct {
	*commands.Command
	route func(c *Conn, q *query)
	join  joiner // of the replies of several nodes
}

// query is a request of the client's that is being sent. A route must not keep it.
type query struct {
	cmd  *command
	args [][]byte
	raw  []byte // aliases Write's argument: it must be sent or copied
}

// blocks reports whether it can wait for another client.
func (q *query) blocks() bool {
	isBlock := func(arg []byte) bool { return strings.EqualFold(string(arg), "block") }
	return q.cmd.Class == commands.Blocking ||
		q.cmd.Class == commands.MayBlock && slices.ContainsFunc(q.args, isBlock)
}

// table is all commands, by ID.
var table []command

// lookup finds the command of a request.
func lookup(args [][]byte) *command { return &table[commands.Find(args[0]).For(args).ID] }

// headSlot is the slot of a request of argc arguments, of which only the first have come; ok is
// false if they don't tell, or it has none.
func (cmd *command) headSlot(args [][]byte, argc int) (slot int, ok bool) {
	k := &cmd.Keys
	switch {
	case k.Movable() || k.First == 0 || cmd.Nodes.Several() || cmd.HasSubs():
		return 0, false
	case k.Last < 0 && (k.First-1)%k.Step+k.First != argc-1 && argc-1 > k.First+k.Step-1:
		return 0, false
	case len(args) <= max(k.Last, k.First):
		return 0, false
	}
	slot = Slot(args[k.First])
	for i := k.First; i <= k.Last; i += k.Step {
		if Slot(args[i]) != slot {
			return 0, false
		}
	}
	return slot, true
}
