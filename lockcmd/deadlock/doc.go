// Package deadlock finds the owners that wait for each other, in what is known of their waits. It
// asks nobody, and knows no lock by itself.
//
// A Graph has Waits by their IDs: whose they are, and for each key who has it and who goes first.
// Both is what two searches have found alike; ClosedBy finds the waits that close a cycle, each
// with the shortest. Error is the answer to the one that is refused: it names what that client may
// read.
package deadlock
