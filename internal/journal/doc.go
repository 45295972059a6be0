// Package journal remembers what happened to locks during the last hour: events, and what each lock
// has cost those who waited for it.
//
// It is pure: it does no I/O and has no clock. Times are as monotonic.Now. A Journal is told of an
// event by many goroutines, and returns at once; it allocates nothing for a lock that it knows.
// Where nobody is to remember anything it is nil.
//
// # Blame
//
// The waits for a lock are blamed on its holders: each on the one that had the lock at the time. So
// the sum of what is blamed on the holders of a lock is the sum of the waits for it. Waits that go
// on count. A Journal counts them by a sum over time: whenever the holder or the number of waiters
// changes, the time since the last change, once for each waiter, is added to the holder's blame.
//
// # Memory
//
// Half of the memory is for events, the oldest of which go first. The other half is for locks. Of
// these, the longest unused one goes for which nobody waited; if there is none, the longest unused
// one. A lock's numbers are kept by the minute.
package journal
