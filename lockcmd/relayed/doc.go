// Package relayed learns about foreign locks from the relayed commands of clients that do not know
// LOCK.
//
// Traffic is the door. ObserveForeign notes a request, and later its reply. Traffic then wakes
// waiters (queue.Queues), and shows locks to people: ForeignLocks, Trying, AddHolder. DelaySet puts
// a SET whose answer is delayed (--park) into a line.
//
// The files know those before them: traffic, delay.
package relayed
