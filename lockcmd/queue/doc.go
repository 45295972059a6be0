// Package queue has the clients that wait for locks at this proxy, in order of arrival, and what is
// known of foreign clients that compete with them. It asks nobody and does no I/O: it says who is
// offered a lock, who polls, and when.
//
// Queues is the door. Each Waiter is one LOCK … WAIT:
//
//   - Join, then Outcome and Position tell how it stands, and End takes it out.
//   - BeginPoll, Settle and EndPoll are one poll of the first waiter, PollAfter and PollFailed one
//     that has failed. PollInterval is the time to the next.
//   - Offer is what a release tells its script about the waiters, EndRelease what it has done.
//   - MayBeFree, Reserved, KeyChanged, KeyTracked and ForeignAnswered are hints that a lock may be
//     free: they wake the first waiter.
//   - Refuse, Unblock: others end a wait.
//   - Line and Lines tell people and operators.
//
// A LOCKALL waits in the queues of all its locks, as an All: JoinAll, PlacesOf, GrantAll, EndAll. A
// SET whose answer is delayed waits in a line of its own, as a Delayed.
//
// One lock guards all queues. Nothing is done while it is held but to compute.
package queue
