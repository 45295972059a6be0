package cluster

import "lockproxy/internal/commands"

// mustWait reports whether a request of cmd, with so many arguments, its name included, is routed
// only when all earlier requests are answered. Redis runs nothing behind a command that blocks. A
// request that sets something for the connection is alone on its way (set.go): an earlier request
// that is sent again must not run as another user. Nor must it be given up because of a QUIT, nor
// be overtaken by the WAIT that is to confirm it. The channels that SUNSUBSCRIBE of all means, and
// their nodes, are known once they are confirmed: Redis 8.6 answers SUNSUBSCRIBE at any node, and
// moves it to no other. A node that has refused a MULTI has run what came behind it, so nobody else
// must. In protocol 2's subscribe mode one node refuses a request, otherwise it goes to those of
// its keys. So a node that has a subscription refuses an earlier request that is sent to it again.
func (in *requestReader) mustWait(cmd *command, args int) bool {
	c := in.c
	unsubscribes := cmd.Effect == commands.SUnsubscribe
	restoring := c.subs.restoring > 0 && (cmd.Sets || unsubscribes)
	if in.changing || restoring || cmd.Sets && c.nodes.busy() {
		return true
	}
	settles := c.replies.blocked() || cmd.Sets || cmd.Name == "wait" || cmd.Name == "waitaof" ||
		cmd.Effect == commands.Quit || unsubscribes && (args == 1 || c.subs.awaited > 0) ||
		cmd.Effect.Adds() && c.subs.begins() && c.replies.unanswered > c.subs.awaited
	if t := c.tx.open; t != nil {
		settles = settles || t.beginsAgain(cmd)
	} else {
		settles = settles || c.subs.unsettled() && !whileSubscribed(cmd)
	}
	return settles && c.replies.unanswered > 0
}

// beginsAgain reports whether a request of cmd can send what is queued again, while it is not known
// to be queued.
func (t *transaction) beginsAgain(cmd *command) bool {
	return !t.begun && len(t.raws) > 0 &&
		(t.paused || t.slot < 0 && cmd.Keys.Any() || cmd.Effect == commands.Exec && t.elsewhere())
}

// settled routes the requests that have waited, if they need not wait any more.
func (in *requestReader) settled() {
	if in.held && in.c.err == nil && in.c.replies.unanswered == 0 {
		in.c.goroutines.Go(in.resume) // ends with what nodes take at once; Close waits for it
	}
}

// resume routes the requests that have waited.
func (in *requestReader) resume() {
	c := in.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if !in.held || c.err != nil {
		return
	}
	in.held = false
	if err := in.feed(nil); err != nil {
		c.end(err)
	} else if in.closing && !in.held {
		c.endRequests()
	}
	c.room.Broadcast()
}
