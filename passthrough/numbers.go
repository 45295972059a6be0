package passthrough

import "sync/atomic"

// numbers says whether the number of an upstream connection, by which CLIENT KILL, UNBLOCK and
// TRACKING REDIRECT find it, can have been shown to somebody. Then it stands for the client that had
// the connection, and no other may get that. Its zero value is ready.
type numbers struct {
	asking atomic.Int64  // requests without a reply that show numbers
	shown  atomic.Uint64 // how many have been answered, or lost
}

// asks records that a request is about to be sent that shows numbers.
func (n *numbers) asks() { n.asking.Add(1) }

// answered records that the reply to one has come, or will not.
func (n *numbers) answered() {
	n.shown.Add(1) // first: hidden reads them the other way round
	n.asking.Add(-1)
}

// hidden reports whether nobody has been shown the number of a connection that was opened when
// shown was since. A client that is about to be shown numbers may be shown this one.
func (n *numbers) hidden(since uint64) bool {
	return n.asking.Load() == 0 && n.shown.Load() == since
}
