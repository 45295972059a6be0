// Package chain is what a lock command is made of: Steps and a Reply.
//
// A Step asks for one thing, or waits for other clients, and says what follows. Nothing in it can
// wait, so an event loop drives a chain of them as well as a goroutine. A Reply is a value, in
// no protocol version yet, or an error.
package chain
