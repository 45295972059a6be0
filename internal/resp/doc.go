// Package resp finds the boundaries of Redis protocol messages (RESP2, RESP3 and inline commands),
// and decodes and encodes the few that lockproxy itself reads and writes.
//
//	client -> bytes -> Framer.Next  -> Request (name and arguments)
//	Redis  -> bytes -> Scanner.Scan -> end of a reply, and its Head
//	                   ParseValue, Elements: a whole reply, decoded
//	AppendCommand, AppendError, Encoder: messages of the proxy
//
// Framer and Scanner are incremental: they can be fed a byte at a time, and look at each byte once.
// They never allocate what a peer merely announces. They accept exactly what Redis accepts:
// otherwise an attacker could use a disagreement between proxy and Redis about where a request
// ends.
//
// Neither keeps the bytes. The caller does, and can relay the first part of a large message
// before the rest has arrived (Framer.Stream).
//
// Most messages are small, whole and ordinary. One pass without bookkeeping recognizes them
// (small.go). Everything else is left to Framer and Scanner, which alone decide what is valid.
//
// The package does no I/O, except ReadReply, starts no goroutine and reads no clock.
package resp
