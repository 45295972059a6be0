package cluster

import "lockproxy/internal/commands"

// holding is what the client's next request waits for before it is routed.
type holding uint8

const (
	notHeld        holding = iota
	untilConfirmed         // subscriptions are confirmed
	untilAnswered          // all earlier requests are answered
)

// waitsFor is what a request of cmd has to wait for, with so many arguments, its name included. In
// protocol 2's subscribe mode one node refuses it, otherwise it goes to those of its keys. An
// earlier request that is sent again must not run as another user, nor be given up because of a
// QUIT. Which channels SUNSUBSCRIBE of all means is known once they are confirmed. A node that has
// refused a MULTI has run what came behind it, so nobody else must.
func (in *requestReader) waitsFor(cmd *command, args int) holding {
	c := in.c
	settles := false
	switch cmd.Effect {
	case commands.Auth, commands.Hello, commands.Reset, commands.Quit:
		settles = true
	case commands.SUnsubscribe:
		settles = args == 1
	}
	if settles && c.replies.unanswered > 0 {
		return untilAnswered
	}
	if t := c.tx.open; t != nil && t.beginsAgain(cmd) {
		return untilAnswered
	}
	if c.tx.open == nil && c.subs.unsettled() && !whileSubscribed[cmd.Name] {
		return untilConfirmed
	}
	return notHeld
}

// beginsAgain reports whether a request of cmd can send what is queued again, while it is not known
// to be queued.
func (t *transaction) beginsAgain(cmd *command) bool {
	return !t.begun && len(t.raws) > 0 &&
		(t.paused || t.slot < 0 && cmd.Keys.Any() || cmd.Effect == commands.Exec && t.elsewhere())
}

// settled routes the requests that have waited, if they need not wait any more.
func (in *requestReader) settled() {
	c := in.c
	switch {
	case in.held == notHeld || c.err != nil:
	case in.held == untilAnswered && c.replies.unanswered > 0:
	case in.held == untilConfirmed && c.subs.unsettled():
	default:
		c.goroutines.Go(in.resume) // ends with what nodes take at once; Close waits for it
	}
}

// resume routes the requests that have waited.
func (in *requestReader) resume() {
	c := in.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if in.held == notHeld || c.err != nil {
		return
	}
	in.held = notHeld
	if err := in.feed(nil); err != nil {
		c.end(err)
	} else if in.closing && in.held == notHeld {
		c.endRequests()
	}
	c.room.Broadcast()
}
