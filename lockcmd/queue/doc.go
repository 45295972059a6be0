// Package queue has the clients that wait for locks at this proxy, in order of arrival, and what is
// known of foreign clients that compete with them. It asks nobody, does no I/O, and has neither
// goroutines nor timers: it says who is offered a lock, who polls, and when.
//
// Queues is the door, and says who waits here at all. Of returns the Queue of one lock:
//
//   - Offer is what a release tells its script about the waiters, HandOver.End what it has done.
//   - BeforeTry is what a script that asks for the lock must know.
//   - MayBeFree, KeyChanged, KeyTracked and ForeignAnswered are hints that the lock may be free:
//     they wake the first waiter. So does Queues.Reserved, another proxy's claim: the more of them
//     were wrong, the less often.
//   - Waiters and Line tell people and operators, At the search for deadlocks.
//   - Watch and Delay begin Waits outside of the queue: until the holder changes, and of SETs with
//     delayed answers, which have a line of their own.
//
// Join begins a LOCK … WAIT. A Wait is all of it, a Waiter its place in the queue of its lock:
//
//   - WakeBy is told that something has changed, State says how it stands, and End takes it out.
//   - PollBegan, BeginPoll, Settle, EndPoll and PollEnded are one poll of the first waiter,
//     Answered, PollAfter and PollFailed how it ended. PollInterval is the time to the next.
//   - Refuse and Queues.Unblock: others end a wait.
//
// JoinAll begins a LOCKALL … WAIT: a Wait with a Waiter for each lock. Places says where it is
// first, and Told that the upstream knows that.
//
// An entry has all that is known here of one lock. One mutex guards all entries, and nothing but
// computing is done while it is held. Callers say what time it is. Chance decides how long the
// pauses between polls are, so that clients do not poll all at once.
//
// The files know those before them: pause, claims, waiter, queue (one queue), foreign, entry,
// queues, keep, watch, delayed, release, all, hints, refuse, outage, poll, show. Only waiter points
// back: a Wait to its Queues, a Waiter to its line.
package queue
