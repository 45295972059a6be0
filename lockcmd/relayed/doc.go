// Package relayed learns about foreign locks from the commands that are relayed for clients which
// do not know LOCK.
//
// Traffic is the door. MayConcern and TakesForeign say, cheaply, whether a request matters;
// ObserveForeign notes it, and later its reply. What is learned wakes waiters (queue.Queues), goes
// to the journal, and is shown to people: ForeignLocks, Trying, AddHolder. DelaySet puts a SET
// whose answer is delayed (--park) into a line.
//
// The files know those before them: journal, traffic, delay.
package relayed
