// Package journal remembers what happened to locks during the last hour: events, and what each lock
// has cost its waiters.
//
// It is pure: it does no I/O and has no clock. Times are as monotonic.Now. Any goroutine can report
// an event to a Journal. That does not block, and allocates nothing for a lock that is known. A nil
// Journal remembers nothing.
//
// # Blame
//
// The waits for a lock are blamed on whoever had the lock at the time. So the blame of all its
// holders is the sum of the waits for it, with those that go on. A Journal sums over time: whenever
// the holder or the number of waiters changes, it adds the time since the last change to the
// holder's blame, once for each waiter.
//
// # Memory
//
// Half of the memory is for events; the oldest goes first. The other half is for locks; the longest
// unused one goes first, if possible one that nobody waited for. A lock's numbers are kept by the
// minute.
package journal
