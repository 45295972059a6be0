// Package chain is what a lock command is made of: Steps and a Reply.
//
// A Step asks for one thing and says what follows. Nothing in it can wait, so an event loop drives
// a chain of them as well as a goroutine; only Step.Wait takes a goroutine. It begins a Turn, which is
// a wait for other clients, and takes a goroutine only while it asks. Drive runs a chain of
// Steps that ask for scripts alone. A Reply is in no protocol version yet: Int, Bulk, Map and the
// others make one.
package chain
